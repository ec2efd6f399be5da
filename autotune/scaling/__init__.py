"""What more ranks gain: the same training with 1, 2, 4, ... of them, raced in rounds, and the efficiency of each."""
