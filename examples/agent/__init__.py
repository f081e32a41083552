"""An agent that asks a model in turns, with tools as children and streamed output."""
