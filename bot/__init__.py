"""The pipeline that joins the stages, and everything that speaks to GitHub."""
