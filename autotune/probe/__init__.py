"""The child process: one request in, one result out. The only room where torch is at home."""
