"""What a running attempt may ask and tell: its context, its effects, its delivery or transition, its lease."""
