"""The line that a frame of the user's is in."""

import sys

from autotune.profile.measuring.user_lines import UserLine, line_number


class Context:
    """Looks at the frame that leaves it."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.frame = sys._getframe(1)
        self.number = line_number(self.frame)


def test_a_line_that_runs_is_known():
    with Context() as one:
        pass

    assert UserLine.of(one.frame.f_code, one.number).text == "with Context() as one:"


def test_code_that_python_added_belongs_to_the_line_before():
    class Frame:
        f_lineno = None
        f_lasti = 4
        f_code = test_a_line_that_runs_is_known.__code__

    first = test_a_line_that_runs_is_known.__code__.co_firstlineno

    assert first <= line_number(Frame()) <= first + 1
    assert UserLine.of(Frame.f_code, line_number(Frame())).text
