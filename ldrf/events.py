"""What happens during a run, told to one callback ``(event, data)`` and to ``logging.getLogger("ldrf")``.

| event | when | data |
|---|---|---|
| ``traced`` | the model is understood | ``units`` and ``skipped``, names |
| ``deployed`` | a latency is to be reached, and the runtime is known | ``runtime``, ``batch`` and ``threads`` |
| ``planned`` | widths are chosen | ``widths`` and ``full_widths`` by unit |
| ``unit`` | a unit is cut and reconstructed | ``index`` and ``count``, and all of :class:`ldrf.UnitReport` |
| ``recomposed`` | the slim model exists and is verified | ``seconds`` by stage |
| ``tried`` | a network on the way to ``max_drop`` is judged | ``ratio``, ``drop`` (None if out of reach), ``kept`` |
| ``point`` | a target of a sweep is done | ``name``, ``drop``, ``speedup`` |
| ``step``, ``stepped`` | a step of shipping begins (or was ``done`` before), and ends | ``name``; ``done`` or ``seconds`` |
| ``shipped`` | the release is written | ``file``, and ``rows`` with the figures of each network |
| ``epoch`` | fine-tuning went once through the images | all of a result's ``epochs[i]``, and ``epochs``, ``measure``, ``best`` |
| ``done`` | the run hands back its result | ``speedup`` after pruning, ``began`` and ``ended`` after fine-tuning |
"""  # noqa: E501

import logging
from collections.abc import Callable
from typing import Any

from ldrf.runtime.processes import is_first

OnEvent = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("ldrf")
log.addHandler(logging.NullHandler())  # silent unless the program that uses ldrf asks for more


def teller(on_event: OnEvent | None) -> Callable[..., None]:
    """A function ``tell(event, **data)`` that logs, and calls ``on_event`` if there is one; data is ready for JSON.

    Of several processes only the first tells.
    """

    def tell(event: str, **data: Any) -> None:
        if not is_first():
            return
        log.info("%s: %s", event, data)
        if on_event is not None:
            on_event(event, data)

    return tell
