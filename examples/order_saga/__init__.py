"""An order as a durable function: steps, compensation, an approval and a sleep."""
