//! `netvale man`: manual pages.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_mangen::Man;

use crate::{CliContext, CliError, out};

mod examples;
mod roff;
mod topics;

/// Write the manual pages: netvale(1), one for each subcommand, netvale.toml(5) and netvale(7).
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder; created if it does not exist.
    pub dir: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// The folder cannot be written.
pub fn run(args: &ManArgs, ctx: &CliContext) -> Result<(), CliError> {
    let count = write_all(&args.dir, (ctx.definition)()).map_err(|error| {
        let what = format!("cannot write the manual pages to {}: {error}", args.dir.display());
        CliError::failed(what, "give a folder that you can write to")
    })?;
    out::line(format_args!("{count} manual pages are in {}", args.dir.display()))
}

fn write_all(dir: &Path, mut command: Command) -> io::Result<usize> {
    std::fs::create_dir_all(dir)?;
    command = command.disable_help_subcommand(true);
    command.build();
    let mut count = 0;
    write_command(dir, &command, &mut count)?;
    for (file, text) in [("netvale.toml.5", topics::configuration()), ("netvale.7", topics::overview())] {
        std::fs::write(dir.join(file), text)?;
        count += 1;
    }
    Ok(count)
}

/// Writes the pages of a command and its subcommands.
fn write_command(dir: &Path, command: &Command, count: &mut usize) -> io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write_command(dir, sub, count)?;
    }
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    std::fs::write(dir.join(format!("{name}.1")), page(command, &name)?)?;
    *count += 1;
    Ok(())
}

fn page(command: &Command, name: &str) -> io::Result<String> {
    let man = Man::new(command.clone());
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    let help = command.get_after_long_help().or_else(|| command.get_after_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let has_examples = help.contains("Examples:\n");
    text += &roff::sections(&help);
    if !has_examples {
        text += &roff::section("EXAMPLES", &examples::of(name));
    }
    Ok(text + &topics::common(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: each page has the required sections, in the order of man-pages(7), and the lines of a table are not
    /// joined.
    #[test]
    fn each_page_has_the_required_sections() {
        let dir = tempfile::tempdir().unwrap();
        let count = write_all(dir.path(), crate::cli::command()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), count);
        for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let mut wanted = vec!["NAME", "DESCRIPTION", "EXAMPLES", "FILES", "SEE ALSO"];
            if name.ends_with(".1") {
                wanted.extend(["SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"]);
            }
            for section in wanted {
                let count = text
                    .lines()
                    .filter(|line| line.trim_matches('"').replace(".SH \"", ".SH ") == format!(".SH {section}"));
                assert_eq!(count.count(), 1, "{name}: {section}\n{text}");
            }
            assert!(!text.contains(".SH EXTRA"), "{name}");
        }
        let link = std::fs::read_to_string(dir.path().join("netvale-link.1")).unwrap();
        assert!(link.contains("\n  loss gemodel P [R [1\\-H [1\\-K]]]           bursts"), "{link}");
    }
}
