"""Receipts: charges that other processes can find, by an idempotency key or a token.

Read in this order: `swap` (a swap takes effect once), `joint_plan` (the writes that charge all
levels together), `charge` (the charge and its receipt in one transaction), `repeat` (a key that has
been charged for), `end` (a lease is ended once).
"""
