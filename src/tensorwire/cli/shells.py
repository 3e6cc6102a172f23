"""Completion scripts for bash, zsh and fish, generated from the parsers of all commands."""

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
    """Whether the option takes a value."""
    words: tuple[str, ...]
    """The possible values, if they are a fixed set."""
    files: bool
    """Whether the value is a file name."""


class Command(NamedTuple):
    name: str
    about: str
    options: list[Option]
    words: tuple[str, ...]
    """The possible values of its arguments; if empty, they are file names."""


def commands() -> list[Command]:
    """Return every command with the options of its parser."""
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


def _bash(commands: list[Command]) -> str:
    lines = [
        '# bash completion for tensorwire: eval "$(tensorwire completion bash)"',
        "_tensorwire() {",
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= i",
        "  COMPREPLY=()",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        "    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac",
        "  done",
        "  case $command in",
        f"    '') {_words([*(command.name for command in commands), *_TOP])} ;;",
    ]
    for command in commands:
        lines += [f"    {command.name})", "      case $prev in"]
        for option in command.options:
            if option.takes:
                names = "|".join(option.names)
                lines.append(
                    f"        {names}) {_words(option.words) if option.words else ':'}; return ;;"
                )
        every = [name for option in command.options for name in option.names]
        lines += ["      esac", f"      if [[ $cur == -* ]]; then {_words(every)}"]
        lines += [f"      else {_words(command.words)}"] if command.words else []
        lines += ["      fi ;;"]
    # If COMPREPLY stays empty, readline completes file names with its own quoting (-o default).
    return "\n".join(
        [*lines, "  esac", "}", "complete -o bashdefault -o default -F _tensorwire tensorwire"]
    )


def _words(words: list[str] | tuple[str, ...]) -> str:
    return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$cur"))'


def _zsh(commands: list[Command]) -> str:
    lines = [
        "#compdef tensorwire",
        '# zsh completion for tensorwire: eval "$(tensorwire completion zsh)" after compinit',
        "_tensorwire() {",
        "  local -a commands",
        "  commands=(",
        *(
            f"    {shlex.quote(f'{command.name}:{_zsh_text(command.about)}')}"
            for command in commands
        ),
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
    for command in commands:
        lines.append(f"    {command.name}) _arguments -s \\")
        for option in command.options:
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
        rest = f"*:argument:({' '.join(command.words)})" if command.words else "*:file:_files"
        lines.append(f"      {shlex.quote(rest)} ;;")
    return "\n".join([*lines, "  esac", "}", "compdef _tensorwire tensorwire"])


def _zsh_text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _fish(commands: list[Command]) -> str:
    names = " ".join(command.name for command in commands)
    none = f"not __fish_seen_subcommand_from {names}"
    lines = [
        "# fish completion for tensorwire: tensorwire completion fish >"
        " ~/.config/fish/completions/tensorwire.fish"
    ]
    lines += [
        f"complete -c tensorwire -n {_fish_text(none)} -l {name[2:]} -d {_fish_text(about)}"
        for name, about in _TOP.items()
    ]
    for command in commands:
        lines.append(
            f"complete -c tensorwire -f -n {_fish_text(none)} -a {command.name} -d"
            f" {_fish_text(command.about)}"
        )
    for command in commands:
        inside = (
            f"complete -c tensorwire -n {_fish_text(f'__fish_seen_subcommand_from {command.name}')}"
        )
        for option in command.options:
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
        lines += [f"{inside} -f -a {_fish_text(' '.join(command.words))}"] if command.words else []
    return "\n".join(lines)


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
