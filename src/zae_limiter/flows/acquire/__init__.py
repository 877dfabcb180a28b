"""Acquiring: from the request of a caller to writes that charge bucket items, and back.

Read in this order: `lease` (the life of a lease), `lease_record` (what is known of it), `request`
(the charges of all levels), `charge` (one charge and its progress), `acquire` (all levels or none,
choice of the item), `item` (plan a write, follow the answer), `send` (each write takes effect
once), `settle` (corrections and refunds), `refusals` and `refusal_cache` (refusing without a call),
`wait` and `wait_queue` (waiting for tokens).
"""
