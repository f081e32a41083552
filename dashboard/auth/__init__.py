"""Users, sessions, authorization, and the throttling of sign-ins."""
