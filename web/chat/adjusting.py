"""What a person chose beside the question: how warm, how long, how thoughtful the answer should be."""

from typing import Annotated

from fastapi import Depends, Request

from backend.engines.parameters import Parameters
from backend.groups.rights import Right
from web.rights import rights_of


async def adjusted(request: Request) -> Parameters | None:
    """None where the form has no such fields: then what was chosen before holds. For whom choosing is switched off,
    everything is as the model does, also where they chose something before."""
    if Right.PARAMETERS not in rights_of(request):
        return Parameters()
    form = await request.form()
    if "adjusts" not in form:
        return None
    return Parameters.typed({name: value for name, value in form.items() if isinstance(value, str)})


Adjusted = Annotated[Parameters | None, Depends(adjusted)]
