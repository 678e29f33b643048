"""Facts about the backend that needs no compiler."""

import pytest

import launching
from gradwire import build, fallback
from gradwire.environment import Environment


@pytest.mark.oldest_torch
def without_a_compiler_every_operation_works_and_what_is_lacking_is_told() -> None:
    variables = (("CXX", "no-such-compiler"),)
    ended = launching.Launch("without_compiler.py", world=3, variables=variables).run()
    trained = [rank.succeeded() for rank in ended]
    assert trained[0] == trained[1] == trained[2]
    assert "no-such-compiler" in ended[0].errors
    assert all(lack in ended[0].errors for lack in fallback.LACKS)


def without_a_compiler_a_group_can_be_created_again() -> None:
    variables = (("CXX", "no-such-compiler"),)
    launch = launching.Launch("failing.py", arguments=("again",), variables=variables, timeout=60)
    for ended in launch.run():
        assert ended.succeeded()["sum"] == 4.0


def an_unknown_kind_of_binding_is_refused_with_those_that_are_known() -> None:
    environment = Environment.read({"GRADWIRE_BINDING": "rust"})
    with pytest.raises(build.BindingError, match="'rust': allowed are auto, compiled, python"):
        build.compiles(environment)
