"""Programs that developers of this repository run; nothing here is part of the product."""
