"""Dependencies for FastAPI. The other names are those of `redrive.contrib.starlette`.

::

    app = FastAPI(lifespan=lifespan(jobs, worker=True), exception_handlers=refusals())


    @app.get("/orders/{number}")
    def look(number: int, jobs: Jobs): ...
"""

from typing import Annotated

from redrive.app.app import App
from redrive.contrib import extra

with extra("fastapi"):
    from fastapi import Depends

    # In the block too, so that a missing Starlette is reported with this extra.
    from redrive.contrib.starlette import RequestTimeout, jobs_of, lifespan, refusals, serving

__all__ = ["Jobs", "RequestTimeout", "jobs_of", "lifespan", "refusals", "serving"]

#: The annotation of a parameter that receives the App; tests replace it by ``app.dependency_overrides[jobs_of]``.
Jobs = Annotated[App, Depends(jobs_of)]
