"""The computer: processors, memory, accelerators, and what runs on them. Imports no torch."""
