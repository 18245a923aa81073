//! Command-line flags of settings, built from the settings table.

use std::ffi::{OsStr, OsString};

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use netvale_control::options::OptionShape;
use netvale_daemon::config::{SETTINGS, Setting};
use serde_json::Value;

/// The settings that flags on a command line set, each with the words after its flag.
#[derive(Clone, Debug)]
pub struct SettingFlags(pub Vec<(&'static Setting, Vec<OsString>)>);

impl SettingFlags {
    /// Returns the CPUs to which workers are to be pinned; empty if the flag is not given.
    pub fn cpus(&self) -> Vec<u64> {
        let words = self.0.iter().find(|(setting, _)| setting.name == "cpus");
        let list = words.and_then(|(setting, words)| setting.shape.parse(words.last()?.to_str()?).ok());
        let cpus = list.as_ref().and_then(Value::as_array).into_iter().flatten();
        cpus.filter_map(Value::as_u64).collect()
    }
}

impl clap::Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().filter_map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let with_flags = SETTINGS.iter().filter(|setting| setting.flag().is_some());
        Ok(Self(with_flags.filter_map(|setting| Some((setting, words(matches, setting)?))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn words(matches: &ArgMatches, setting: &Setting) -> Option<Vec<OsString>> {
    match setting.shape {
        OptionShape::Flag => matches.get_flag(setting.name).then(Vec::new),
        _ => Some(matches.get_raw(setting.name)?.map(OsStr::to_owned).collect()),
    }
}

fn arg(setting: &'static Setting) -> Option<Arg> {
    let (flag, value_name) = setting.flag()?;
    let shape = setting.shape;
    let arg = Arg::new(setting.name).long(flag).help(setting.help());
    let arg = if setting.table == "sockets" { arg.help_heading("Sockets") } else { arg };
    let arg = if setting.name == "spin_us" { arg.conflicts_with("poll_always") } else { arg };
    Some(match (shape, value_name) {
        (OptionShape::Flag, _) => arg.action(ArgAction::SetTrue),
        (OptionShape::Texts, "DIR") => {
            arg.value_name(value_name).action(ArgAction::Append).value_parser(ValueParser::path_buf())
        }
        (OptionShape::Texts, _) => arg.value_name(value_name).action(ArgAction::Append),
        _ => arg.value_name(value_name).value_parser(move |word: &str| shape.parse(word)),
    })
}

#[cfg(test)]
mod tests {
    use netvale_daemon::config::{ConfigFile, Overrides};
    use netvale_harness::shapes::{self, samples};

    use super::*;

    fn judged(words: Vec<String>) -> Result<Overrides, String> {
        let command = <SettingFlags as clap::Args>::augment_args(Command::new("up"));
        let matches = command.try_get_matches_from(std::iter::once("up".to_owned()).chain(words));
        let flags = matches.and_then(|matches| SettingFlags::from_arg_matches(&matches)).map_err(|e| e.to_string())?;
        Ok(Overrides { words: flags.0, ..Overrides::default() })
    }

    /// Objective: a flag accepts exactly the values that the configuration file accepts, with the same meaning.
    #[test]
    fn flags_judge_as_the_file_does() {
        let mut compared = 0;
        for (setting, (flag, _)) in SETTINGS.iter().filter_map(|setting| Some((setting, setting.flag()?))) {
            for (value, fits) in samples(setting.shape) {
                let Some(words) = shapes::words(setting.shape, &value) else { continue };
                let words = words.into_iter().map(|word| format!("--{flag}={word}")).collect();
                let found =
                    judged(words).and_then(|flags| flags.over(ConfigFile::default()).map_err(|e| e.to_string()));
                assert_eq!(found.is_ok(), fits, "--{flag} {value}: {found:?}");
                let in_file = toml_of(setting, &value).map(ConfigFile::into_config);
                assert_eq!(found.is_ok(), in_file.is_ok(), "{} = {value}: {in_file:?}", setting.path());
                if let (Ok(found), Ok(in_file)) = (found, in_file) {
                    assert_eq!(setting.value(&found), setting.value(&in_file), "--{flag} {value}");
                }
                compared += 1;
            }
        }
        assert!(compared > 50, "{compared}");
    }

    fn toml_of(setting: &Setting, value: &Value) -> Result<ConfigFile, String> {
        let head = if setting.table.is_empty() { String::new() } else { format!("[{}]\n", setting.table) };
        ConfigFile::parse(&format!("{head}{} = {value}", setting.name)).map_err(|e| e.to_string())
    }

    /// Objective: a flag without a value sets the opposite of its setting's default.
    #[test]
    fn flags_without_a_value() {
        for (setting, (flag, value)) in SETTINGS.iter().filter_map(|setting| Some((setting, setting.flag()?))) {
            assert_eq!(value.is_empty(), setting.shape == OptionShape::Flag, "{flag}");
            if setting.shape == OptionShape::Flag {
                let config = judged(vec![format!("--{flag}")]).unwrap().over(ConfigFile::default()).unwrap();
                assert_eq!(setting.value(&config).to_string(), (setting.default() != "true").to_string(), "{flag}");
            }
        }
    }
}
