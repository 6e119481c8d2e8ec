"""Options of saving, and the status of restoring: TensorFlow's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from distlab.errors import CheckpointMismatchError

_MOST_LISTED: Final = 12


@final
@dataclass(frozen=True)
class CheckpointOptions:
    """Options of a save (`tf.train.CheckpointOptions`).

    Attributes:
      enable_async: Whether `save` and `write` return when the values are copied, and a thread
        writes them. `sync()` waits for it, the next save does, and so does the end of the process.
      experimental_enable_async_checkpoint: The same, under its first name.

    Example:
      >>> import distlab as dl
      >>> options = dl.train.CheckpointOptions(enable_async=True)
      >>> checkpoint = dl.train.Checkpoint(step=3)
      >>> path = checkpoint.write("checkpoints/last", options)
      >>> checkpoint.sync()
    """

    enable_async: bool = False
    experimental_enable_async_checkpoint: bool = False

    @property
    def in_background(self) -> bool:
        """True if a thread writes."""
        return self.enable_async or self.experimental_enable_async_checkpoint


@final
@dataclass(frozen=True)
class CheckpointLoadStatus:
    """Result of `Checkpoint.restore`, with the assertions of TensorFlow's status.

    Attributes:
      restored: The number of values that were restored.
      unused: Names in the checkpoint that nothing took.
      missing: Names of objects that the checkpoint did not have; only with `partial=True`.
      given: Whether there was a checkpoint: False for `restore(None)`.

    Example:
      >>> import distlab as dl
      >>> path = dl.train.Checkpoint(model=dl.Variable(1.0), step=3).save("checkpoints/ckpt")
      >>> status = dl.train.Checkpoint(model=dl.Variable(0.0)).restore(path)
      >>> status.expect_partial().unused
      ('step',)
    """

    restored: int
    unused: tuple[str, ...]
    missing: tuple[str, ...]
    given: bool = True

    def assert_consumed(self) -> CheckpointLoadStatus:
        """Checks that all values were restored, and all that was saved was used.

        Raises:
          CheckpointMismatchError: Names are left over, or there was no checkpoint.
        """
        self._require_given()
        if self.unused:
            raise CheckpointMismatchError(
                f"The checkpoint has values that nothing took: {listed(self.unused)}. Give their "
                "objects to the Checkpoint, or call expect_partial()."
            )
        return self.assert_existing_objects_matched()

    def assert_existing_objects_matched(self) -> CheckpointLoadStatus:
        """Checks that all values were restored.

        Raises:
          CheckpointMismatchError: The checkpoint did not have some, or there was none.
        """
        self._require_given()
        if self.missing:
            raise CheckpointMismatchError(
                f"The checkpoint does not have {listed(self.missing)}. Leave their objects out of "
                "the Checkpoint."
            )
        return self

    def assert_nontrivial_match(self) -> CheckpointLoadStatus:
        """Checks that a value was restored.

        Raises:
          CheckpointMismatchError: None was.
        """
        self._require_given()
        if not self.restored:
            raise CheckpointMismatchError(
                "Nothing was restored: no name of the objects is in the checkpoint. "
                "dl.train.list_variables(path) lists its names."
            )
        return self

    def expect_partial(self) -> CheckpointLoadStatus:
        """Returns itself: names that nothing takes are no error."""
        return self

    def _require_given(self) -> None:
        if not self.given:
            raise CheckpointMismatchError(
                "No checkpoint was given: restore(None) restores nothing, as where "
                "latest_checkpoint finds none. Ask what was restored where there is a path."
            )


def listed(names: Sequence[str], separator: str = ", ") -> str:
    """Returns the first names as a text, and how many there are beyond."""
    more = len(names) - _MOST_LISTED
    text = separator.join(names[:_MOST_LISTED])
    return f"{text}{separator}and {more} more" if more > 0 else text
