//! The shells' scripts. The scripts of bash and zsh are netvale's own: bash splits words at colons, which the full
//! names of all ports contain; zsh loads the script at the first completion, and expects the script to perform that
//! completion, too.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap_complete::env::{EnvCompleter, Fish, Shells};

/// The supported shells.
pub const SHELLS: Shells<'static> = Shells(&[&BASH, &ZSH, &Fish]);

/// Splits words at blanks only, and removes from each candidate the part up to the last colon or equals sign, which
/// bash does not replace.
const BASH: Script = Script {
    shell: "bash",
    has_help: false,
    text: r#"_NAME() {
    local line=${COMP_LINE:0:$COMP_POINT} words current
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=("")
    current=${words[${#words[@]} - 1]}
    mapfile -t COMPREPLY < <(VAR=bash "COMPLETER" -- "${words[@]}" 2>/dev/null)
    # What bash takes for words of their own stays as it is.
    local before=${current%"${current##*[:=]}"}
    [[ -z $before ]] || COMPREPLY=("${COMPREPLY[@]#"$before"}")
    [[ ${#COMPREPLY[@]} != 1 || ${COMPREPLY[0]} != *[:/=] ]] || compopt -o nospace
}
complete -o default -F _NAME BIN
"#,
};

const ZSH: Script = Script {
    shell: "zsh",
    has_help: true,
    text: r#"#compdef BIN
_NAME() {
    local -a found open closed
    local line value item
    found=("${(@f)$(VAR=zsh "COMPLETER" -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    [[ -n $found ]] || { _files; return }
    for line in $found; do
        value=${line%%$'\t'*}
        item=${value//:/\\:}
        [[ $line != *$'\t'* ]] || item+=:${line#*$'\t'}
        if [[ $value == *[:/=] ]]; then open+=("$item"); else closed+=("$item"); fi
    done
    (( ! $#open )) || _describe -V values open -S ''
    (( ! $#closed )) || _describe -V values closed
}
if [[ $funcstack[1] == _NAME ]]; then _NAME "$@"; else compdef _NAME BIN; fi
"#,
};

/// A shell's script, and whether the shell shows descriptions of candidates.
#[derive(Clone, Copy, Debug)]
struct Script {
    shell: &'static str,
    has_help: bool,
    text: &'static str,
}

impl EnvCompleter for Script {
    fn name(&self) -> &'static str {
        self.shell
    }

    fn is(&self, name: &str) -> bool {
        name == self.shell
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let names = [("NAME", name), ("VAR", var), ("COMPLETER", completer), ("BIN", bin)];
        let script = names.iter().fold(self.text.to_owned(), |text, (word, value)| text.replace(word, value));
        buf.write_all(script.as_bytes())
    }

    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> io::Result<()> {
        let last = args.len().saturating_sub(1);
        for candidate in clap_complete::engine::complete(cmd, args, last, current_dir)? {
            let help = candidate.get_help().filter(|_| self.has_help).map(ToString::to_string);
            let help = help.and_then(|help| help.lines().next().map(|line| format!("\t{line}"))).unwrap_or_default();
            writeln!(buf, "{}{help}", candidate.get_value().to_string_lossy())?;
        }
        Ok(())
    }
}
