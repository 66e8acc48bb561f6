"""Rotary embedding: it turns, it does not stretch, and it depends on distance alone."""

import torch

from pocketlm.rotary import apply_rotary, rotary_tables


def test_lengths_are_kept():
    cos, sin = rotary_tables(16, 32, 10000.0)
    query, key = torch.randn(16, 8, 32), torch.randn(16, 2, 32)
    turned_query, turned_key = apply_rotary(query, key, cos, sin)
    torch.testing.assert_close(turned_query.norm(dim=-1), query.norm(dim=-1))
    torch.testing.assert_close(turned_key.norm(dim=-1), key.norm(dim=-1))


def test_position_zero_is_left_as_it_is():
    cos, sin = rotary_tables(1, 32, 10000.0)
    query, key = torch.randn(1, 8, 32), torch.randn(1, 2, 32)
    turned_query, turned_key = apply_rotary(query, key, cos, sin)
    torch.testing.assert_close(turned_query, query)
    torch.testing.assert_close(turned_key, key)


def test_products_depend_on_the_distance_alone():
    cos, sin = rotary_tables(32, 32, 10000.0)
    query, key = torch.randn(1, 1, 32).expand(32, 1, 32), torch.randn(1, 1, 32).expand(32, 1, 32)
    query, key = apply_rotary(query.contiguous(), key.contiguous(), cos, sin)
    near = (query[5] * key[3]).sum()
    far = (query[25] * key[23]).sum()
    torch.testing.assert_close(near, far, rtol=1e-3, atol=1e-3)
