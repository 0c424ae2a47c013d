"""The sections of the attention page: the map of heads, one head, masks, teacher forcing, logit lens."""
