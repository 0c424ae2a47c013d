"""The texts of the sampling lab; its script fills in `{…}`."""

from __future__ import annotations

from charts.base import Translate
from inference.errors import SENTENCES, sentences


def lab_words(t: Translate) -> dict[str, str]:
    """By the names that the script uses."""
    return {**_control_words(t), **_column_words(t), **_needle_words(t)}


def _control_words(t: Translate) -> dict[str, str]:
    return {
        "settings": t("Settings"),
        "mode": t("Decoding"),
        "random": t("Random"),
        "greedy": t("Greedy"),
        "more": t("More settings"),
        "off": t("off"),
        "greedy_off": t("left out by greedy decoding"),
        "whole_between": t("{name} must be a whole number from {low} to {high}, not {value}."),
        "between": t("{name} must be a number from {low} to {high}, not {value}."),
        "whole_least": t("{name} must be a whole number of at least {low}, not {value}."),
        "least": t("{name} must be a number of at least {low}, not {value}."),
        "number": t("{name} must be a number, not {value}."),
        "above_zero": sentences((t("repetition_penalty must be above 0."), t("1 turns it off.")), t),
        "cold": t("A temperature of at most 0.00001 is greedy: the highest score is taken."),
        "p_zero": t("0 keeps the likeliest token alone."),
        "k_large": t("The vocabulary has {size} tokens, so nothing is removed."),
    }


def _column_words(t: Translate) -> dict[str, str]:
    return {
        "columns": t("Candidates, step by step"),
        "token": t("token"),
        "logit": t("raw logit"),
        "raw": t("raw probability"),
        "final": t("final probability"),
        "kept": t("{n} left"),
        "removed": t("removed by {setting}"),
        "other": t("all other {n} tokens"),
        "order": t("Order of steps"),
        "own_order": t("own order"),
        "move": t("{name}: drag to another place, or Alt and an arrow key"),
        "earlier": t("Move {name} one step earlier"),
        "later": t("Move {name} one step later"),
        "parts_kept": t(
            "Order changes the result: {name} leaves {here} tokens here and {there} in transformers’ order."
        ),
        "parts_probs": t("Order changes the result: from {name} on, probabilities differ from transformers’ order."),
        "same": t("In transformers’ order the result is the same."),
        "not_finite": t(
            "The model's logit for token {token_id} is {value}, so there is no distribution to choose from."
        ),
        "empty": sentences(
            (
                t("{step} removed every token that was left, so there is nothing to choose from."),
                t("Loosen that setting."),
            ),
            t,
        ),
        "agrees": t("The server has computed the same."),
        "waiting": t("The server computes the same …"),
        "disagrees": t("Server and browser disagree at {step}; the server’s result counts: “{token}”."),
    }


def _needle_words(t: Translate) -> dict[str, str]:
    return {
        "needle": t("The draw"),
        "u": t("uniform number u"),
        "u_error": t("u must be a number from 0 to below 1, not {value}."),
        "redraw": t("Redraw"),
        "back": t("Back to the recorded u"),
        "sentences": t(SENTENCES),
        "fell": t("u = {u} falls on “{token}”, which has {share}."),
        "greedy_took": t("Greedy decoding takes “{token}”, whatever u is."),
        "as_recorded": t("The run took the same token."),
        "changed": t("The run took “{token}”."),
        "rest": t("{n} more"),
        "segment": t("{token}: {share}"),
        "bar": t("Final distribution, likeliest first; arrow keys move u"),
    }
