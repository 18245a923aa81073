//! The options of `netvale attach` as command-line arguments, built from the option table.

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use netvale_control::options::{AttachOption, Heading, OPTIONS, OptionShape};
use netvale_control::types::PortOptions;
use serde_json::Value;

/// The attach options of a command line.
#[derive(Debug)]
pub struct OptionFlags(pub PortOptions);

impl clap::Args for OptionFlags {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self(PortOptions::default());
        options.update_from_arg_matches(matches).map(|()| options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in OPTIONS {
            if let Some(value) = value(matches, option) {
                let bad = |why| clap::Error::raw(ErrorKind::ValueValidation, why);
                option.put(&mut self.0, value).map_err(bad)?;
            }
        }
        Ok(())
    }
}

fn value(matches: &ArgMatches, option: &AttachOption) -> Option<Value> {
    match option.shape {
        OptionShape::Flag => matches.get_flag(option.key).then_some(Value::Bool(true)),
        OptionShape::List(_) => {
            let lists = matches.get_many::<Value>(option.key)?.filter_map(Value::as_array);
            Some(lists.flatten().cloned().collect())
        }
        _ => matches.get_one::<Value>(option.key).cloned(),
    }
}

fn arg(option: &'static AttachOption) -> Arg {
    let arg = Arg::new(option.key)
        .long(option.flag())
        .help(help(option, true))
        .conflicts_with_all(option.excludes)
        .help_heading(option.heading.title());
    if let OptionShape::Flag = option.shape {
        return arg.action(ArgAction::SetTrue);
    }
    let arg = arg.value_name(option.value_name).value_parser(parser(option.shape)).hide_possible_values(true);
    match option.shape {
        OptionShape::List(_) => arg.action(ArgAction::Append),
        OptionShape::OneOf([.., last]) => arg.num_args(0..=1).default_missing_value(last.to_string()),
        _ => arg,
    }
}

/// Returns the help of an option: its effect, with `names_takers` the ports that it applies to, and its default.
pub(super) fn help(option: &AttachOption, names_takers: bool) -> String {
    let mut text = option.doc().trim_end_matches('.').to_owned();
    if names_takers && option.heading != Heading::General {
        text += &format!(" [{}]", option.takers());
    }
    if let OptionShape::OneOf([.., last]) = option.shape {
        text += &format!(" [without a number: {last}]");
    }
    if !option.default.is_empty() {
        text += &format!(" [default: {}]", option.default);
    }
    text
}

fn parser(shape: OptionShape) -> ValueParser {
    match shape {
        OptionShape::OneOf(choices) => {
            let words = choices.iter().map(u32::to_string).collect::<Vec<_>>();
            PossibleValuesParser::new(words).try_map(move |word| shape.parse(&word)).into()
        }
        _ => ValueParser::from(move |word: &str| shape.parse(word)),
    }
}
