"""Completion scripts for shells, made from the parsers themselves, so that they know every option
there is.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import NamedTuple

from .arguments import FILES, offered

_TOP = {
    "--help": "show help",
    "--version": "show the version",
    "--debug": "show the traceback of an error",
}


class Option(NamedTuple):
    names: list[str]
    about: str
    takes: bool
    """Whether a value follows it."""
    words: tuple[str, ...]
    """What that may be, if that is known."""
    files: bool


class Command(NamedTuple):
    name: str
    about: str
    options: list[Option]
    words: tuple[str, ...]
    """What its arguments may be; file names if there are none."""


def commands() -> list[Command]:
    """Every command, as its parser has it."""
    from . import COMMANDS, parser

    return [_command(name, about, parser(name)) for name, about in COMMANDS.items()]


def _command(name: str, about: str, parser: argparse.ArgumentParser) -> Command:
    options: list[Option] = []
    words: list[str] = []
    for action in parser._actions:
        by = offered(action) if action.nargs != 0 else None
        listed = by if isinstance(by, tuple) else ()
        if action.option_strings:
            options.append(
                Option(
                    list(action.option_strings),
                    action.help or "",
                    action.nargs != 0,
                    listed,
                    by == FILES,
                )
            )
        else:
            words += listed
    return Command(name, about, options, tuple(words))


def _bash(found: list[Command]) -> str:
    lines = [
        '# bash completion of tensorwire: eval "$(tensorwire completion bash)"',
        "_tensorwire() {",
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i",
        "  COMPREPLY=()",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        "    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac",
        "  done",
        "  case $command in",
        f"    '') {_words([*(one.name for one in found), *_TOP])} ;;",
    ]
    for one in found:
        lines += [f"    {one.name})", "      case $prev in"]
        for option in one.options:
            if option.takes:
                names = "|".join(option.names)
                lines.append(
                    f"        {names}) {_words(option.words) if option.words else ':'}; return ;;"
                )
        every = [name for option in one.options for name in option.names]
        lines += ["      esac", f"      if [[ $cur == -* ]]; then {_words(every)}"]
        lines += [f"      else {_words(one.words)}"] if one.words else []
        lines += ["      fi ;;"]
    # With nothing found readline completes file names, with its own quoting.
    return "\n".join(
        [*lines, "  esac", "}", "complete -o bashdefault -o default -F _tensorwire tensorwire"]
    )


def _words(words: list[str] | tuple[str, ...]) -> str:
    return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$cur"))'


def _zsh(found: list[Command]) -> str:
    lines = [
        "#compdef tensorwire",
        '# zsh completion of tensorwire: eval "$(tensorwire completion zsh)" behind compinit',
        "_tensorwire() {",
        "  local -a commands",
        "  commands=(",
        *(f"    {shlex.quote(f'{one.name}:{_zsh_text(one.about)}')}" for one in found),
        "  )",
        "  local i command=",
        "  for ((i = 2; i < CURRENT; i++)); do",
        "    case ${words[i]} in -*) ;; *) command=${words[i]}; break ;; esac",
        "  done",
        "  if [[ -z $command ]]; then",
        "    if [[ $PREFIX == -* ]]; then compadd -- " + " ".join(_TOP),
        "    else _describe command commands",
        "    fi",
        "    return",
        "  fi",
        '  words=("${(@)words[i,-1]}")',
        "  (( CURRENT -= i - 1 ))",
        "  case $command in",
    ]
    for one in found:
        lines.append(f"    {one.name}) _arguments -s \\")
        for option in one.options:
            value = (
                ""
                if not option.takes
                else (
                    f":value:({' '.join(option.words)})"
                    if option.words
                    else ":file:_files"
                    if option.files
                    else ":value: "
                )
            )
            lines += [
                f"      {shlex.quote(f'{name}[{_zsh_text(option.about)}]{value}')} \\"
                for name in option.names
            ]
        lines.append(
            "     "
            f" {shlex.quote('*:argument:(' + ' '.join(one.words) + ')' if one.words else '*:file:_files')} ;;"
        )
    return "\n".join([*lines, "  esac", "}", "compdef _tensorwire tensorwire"])


def _zsh_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _fish(found: list[Command]) -> str:
    names = " ".join(one.name for one in found)
    none = f"not __fish_seen_subcommand_from {names}"
    lines = [
        "# fish completion of tensorwire: tensorwire completion fish >"
        " ~/.config/fish/completions/tensorwire.fish"
    ]
    lines += [
        f"complete -c tensorwire -n {_fish_text(none)} -l {name[2:]} -d {_fish_text(about)}"
        for name, about in _TOP.items()
    ]
    for one in found:
        lines.append(
            f"complete -c tensorwire -f -n {_fish_text(none)} -a {one.name} -d"
            f" {_fish_text(one.about)}"
        )
    for one in found:
        inside = (
            f"complete -c tensorwire -n {_fish_text(f'__fish_seen_subcommand_from {one.name}')}"
        )
        for option in one.options:
            flags = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            value = (
                ""
                if not option.takes
                else (
                    f" -x -a {_fish_text(' '.join(option.words))}"
                    if option.words
                    else " -r -F"
                    if option.files
                    else " -x"
                )
            )
            lines.append(f"{inside} {flags}{value} -d {_fish_text(option.about)}")
        lines += [f"{inside} -f -a {_fish_text(' '.join(one.words))}"] if one.words else []
    return "\n".join(lines)


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
