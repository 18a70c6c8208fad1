"""Print a script that lets the shell complete verbs, options and their values.

For bash, write it to a folder of bash-completion, or source it. For zsh, source it after compinit
(`source <(penstock completion zsh)` in ~/.zshrc). File names are completed wherever a verb takes a
file. The script knows the options of this version: make it again after an upgrade. `--json` prints
the same as a table, for other shells and editors.
"""

from __future__ import annotations

import argparse

from penstock.arguments import device_name
from penstock.errors import UsageError

TYPE_CHECKING = False  # as typing has it; its loading is a tenth of a short command's time
if TYPE_CHECKING:
    from typing import Any

EXAMPLE = """\
  $ penstock completion bash > ~/.local/share/bash-completion/completions/penstock
  $ source <(penstock completion zsh)
  $ penstock scan --pat<TAB>
  --pattern   --patterns
"""

# Without an index: a colon ends a word for bash.
_DEVICES = ["auto", "cpu", "cuda"]

_ZSH_HEAD = """\
autoload -U +X bashcompinit && bashcompinit
"""

# What follows a value that is not listed is a file name: readline's default.
_HEAD = """\
# Completion of penstock, made by `penstock completion`.
_penstock() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words=
    COMPREPLY=()
    if [[ $word == = ]]; then
        word=
    elif [[ $before == = ]]; then
        before=${COMP_WORDS[COMP_CWORD-2]}
    fi
    if ((COMP_CWORD == 1)); then
        words="@VERBS@"
    else
        case "${COMP_WORDS[1]} $before" in
"""

_TAIL = """\
        *)
            if [[ $word == -* ]]; then
                case ${COMP_WORDS[1]} in
@OPTIONS@
                esac
            else
                case ${COMP_WORDS[1]} in
@PLACES@
                esac
            fi ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o bashdefault -o default -F _penstock penstock
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `penstock completion`."""
    parser.add_argument("shell", nargs="?", choices=["bash", "zsh"], help="shell of the script")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _values(action: argparse.Action) -> list[str] | None:
    """Return the values of an option or positional argument; None if they are not a fixed list."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    return _DEVICES if action.type is device_name else None


def table() -> dict[str, dict[str, Any]]:
    """Return the options of each verb (None for an option without a value) and its arguments."""
    from penstock import cli

    told: dict[str, dict[str, Any]] = {}
    for verb in cli.VERBS:
        parser, _ = cli.verb_parser(verb)
        options: dict[str, list[str] | None] = {}
        words: list[str] = []
        for action in parser._actions:  # argparse has no other way to ask
            for name in action.option_strings:
                options[name] = None if action.nargs == 0 else _values(action) or []
            if not action.option_strings:
                words += _values(action) or []
        told[verb] = {"options": options, "words": words}
    return told


def _script() -> str:
    verbs = table()
    verbs["signature"]["words"].append("explain")
    text = _HEAD.replace("@VERBS@", " ".join([*verbs, "--help", "--version"]))
    for verb, takes in verbs.items():
        for option, values in takes["options"].items():
            if values is not None:
                text += f'        "{verb} {option}") words="{" ".join(values)}" ;;\n'
    options, places = [], []
    for verb, takes in verbs.items():
        options.append(f'                {verb}) words="{" ".join(takes["options"])}" ;;')
        words = (
            "$(penstock bench --list 2>/dev/null)" if verb == "bench" else " ".join(takes["words"])
        )
        if words:
            places.append(f'                {verb}) words="{words}" ;;')
    tail = _TAIL.replace("@OPTIONS@", "\n".join(options)).replace("@PLACES@", "\n".join(places))
    return text + tail


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    if arguments.json:
        import json

        print(json.dumps(table(), indent=2))
        return 0
    if arguments.shell is None:
        raise UsageError("completion", "of which shell? bash or zsh")
    print((_ZSH_HEAD if arguments.shell == "zsh" else "") + _script(), end="")
    return 0
