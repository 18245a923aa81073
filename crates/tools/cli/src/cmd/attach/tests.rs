use clap::{Args as _, FromArgMatches};
use netvale_control::Request;
use std::path::Path;

use netvale_control::options::kind::SpecKind;
use netvale_control::options::{AttachOption, OPTIONS, OptionShape};
use netvale_daemon::config::ConfigFile;
use serde_json::{Value, json};

use super::*;

/// Objective: relative paths are resolved in the user's folder; absolute paths and other names stay unchanged.
#[test]
fn relative_paths_are_resolved_in_the_users_folder() {
    let text = |port: &str| AttachSpec::parse(port).map(|spec| spec.written_in(Path::new("/home/u")));
    assert_eq!(text("pcap:a.pcap").as_deref(), Ok("pcap:in=/home/u/a.pcap"));
    assert_eq!(text("pcap:in=a,out=/b").as_deref(), Ok("pcap:in=/home/u/a,out=/b"));
    assert_eq!(text("tap:nv0").as_deref(), Ok("tap:nv0"));
    assert_eq!(text("vale0:a").as_deref(), Ok("vale0:a"));
}

/// Returns a valid value of an option.
fn good(option: &AttachOption) -> Value {
    match option.shape {
        OptionShape::Flag => json!(true),
        OptionShape::Number(_, most) => json!(most),
        OptionShape::OneOf(choices) => json!(choices.last()),
        OptionShape::Factor => json!(2.5),
        OptionShape::Address => json!("02:00:00:00:00:0a"),
        OptionShape::Mode => json!("0660"),
        OptionShape::Switch => json!(false),
        OptionShape::Written(syntax) => json!(syntax.example),
        // Filter rules in compiled form.
        OptionShape::List(_) => json!(["drop 1,6 0 0 1 # all", "pass 1,6 0 0 0"]),
        _ if option.key == "backend" => json!("netmap:p{1"),
        _ => json!("web"),
    }
}

/// Returns the options, with values, that must be given together with an option.
fn needed(option: &AttachOption) -> Vec<(&'static str, Value)> {
    match option.key {
        "native" => vec![("trunk", json!("7"))],
        "vlan_protocol" => vec![("access", json!(7))],
        "burst_in" => vec![("rate_in", json!("7mbit"))],
        "burst_out" | "queue_out" => vec![("rate_out", json!("7mbit"))],
        _ => Vec::new(),
    }
}

/// Returns invalid values of an option.
fn bad(option: &AttachOption) -> Vec<Value> {
    match option.shape {
        OptionShape::Flag => vec![json!(1), json!("true")],
        OptionShape::Number(0, most) => {
            vec![json!(u64::from(most) + 1), json!(-1), json!(1.5), json!("many"), json!(true)]
        }
        OptionShape::Number(least, most) => vec![json!(least - 1), json!(u64::from(most) + 1), json!([least])],
        OptionShape::OneOf(_) => vec![json!(11), json!(-12), json!("x")],
        OptionShape::Factor => vec![json!(-0.5), json!("fast")],
        OptionShape::Address => vec![json!("02:00"), json!(7)],
        OptionShape::Mode => vec![json!("8"), json!("rw"), json!(888)],
        OptionShape::Switch => vec![json!(1), json!("maybe")],
        OptionShape::Written(_) => vec![json!({"no": 1}), json!("no such thing")],
        OptionShape::List(_) => vec![json!(7), json!(["keep 1,6 0 0 1"]), json!([])],
        _ => vec![json!(7), json!(["x"])],
    }
}

type Options<'a> = &'a [(&'a str, Value)];

/// The result of parsing options: the parameters for the daemon, or the reason for a refusal.
type Outcome = Result<AttachParams, String>;

/// Returns the switch. A port with a backend has none.
fn switch(options: Options<'_>) -> &'static str {
    if options.iter().any(|(key, _)| *key == "backend") { "" } else { "vale0" }
}

fn judged(params: AttachParams) -> Outcome {
    params.check().map(|_| params).map_err(|misfit| misfit.to_string())
}

fn command_line(port: &str, options: Options<'_>) -> Outcome {
    let mut words = vec!["attach".to_owned(), switch(options).to_owned(), port.to_owned()];
    words.retain(|word| !word.is_empty());
    for (key, value) in options {
        let flag = format!("--{}", key.replace('_', "-"));
        let is_list = AttachOption::find(key).is_some_and(|option| matches!(option.shape, OptionShape::List(_)));
        let list = value.as_array().filter(|list| is_list && !list.is_empty());
        let each = list.cloned().unwrap_or_else(|| vec![value.clone()]);
        for value in each {
            let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let is_flag =
                value == true && AttachOption::find(key).is_none_or(|option| option.shape == OptionShape::Flag);
            words.push(if is_flag { flag.clone() } else { format!("{flag}={word}") });
        }
    }
    let command = <AttachArgs as clap::Args>::augment_args(clap::Command::new("attach"));
    let args = command.try_get_matches_from(words).and_then(|matches| AttachArgs::from_arg_matches(&matches));
    params(&args.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

fn in_json(port: &str, options: Options<'_>) -> Outcome {
    let options: serde_json::Map<_, _> =
        options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let params =
        json!({"switch": if options.contains_key("backend") { "" } else { "vale0" }, "port": port, "options": options});
    match Request::parse("port.attach", Some(params)) {
        Ok(Request::PortAttach(params)) => judged(*params),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.message),
    }
}

/// Formats a value on one line.
fn toml_of(value: &Value) -> String {
    let pair = |(key, value): (&String, &Value)| format!("{key} = {}", toml_of(value));
    match value {
        Value::Object(map) => format!("{{ {} }}", map.iter().map(pair).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

/// Parses a configuration file with one port. Its first three lines have the switch and the port; each further line has
/// an option.
fn in_toml(port: &str, options: Options<'_>) -> Outcome {
    let mut text = format!("[[port]]\nswitch={:?}\nport={port:?}\n", switch(options));
    options.iter().for_each(|(key, value)| text += &format!("{key} = {}\n", toml_of(value)));
    let file = ConfigFile::parse(&text).map_err(|error| error.to_string())?;
    file.into_config().ports.into_iter().next().ok_or_else(|| "no port".to_owned())
}

/// Passes the options in three ways, and passes each outcome to `check`. A refusal of a configuration file must name
/// the option's line.
fn ways(port: &str, options: Options<'_>, check: impl Fn(Outcome, &str)) {
    check(command_line(port, options), "the command line");
    check(in_json(port, options), "JSON");
    let outcome = in_toml(port, options);
    if let Err(why) = &outcome {
        let lines = 4..4 + options.len().max(1);
        assert!(lines.into_iter().any(|line| why.contains(&format!("line {line},"))), "{port} {options:?}: {why}");
    }
    check(outcome, "TOML");
}

fn names(why: &str, key: &str) -> bool {
    why.contains(key) || why.contains(&key.replace('_', "-"))
}

/// Objective: on the command line, in JSON and in TOML, each option is accepted with its value for exactly the kinds in
/// the table, and is refused by name for all other kinds.
#[test]
fn every_option_for_every_kind() {
    for option in OPTIONS {
        for kind in SpecKind::ALL {
            let port = kind.example;
            let value = good(option);
            let all = [needed(option), vec![(option.key, value.clone())]].concat();
            ways(port, &all, |outcome, way| match outcome {
                Ok(params) => {
                    assert!(option.is_for(kind), "{way} took {} for {port}", option.key);
                    let given = serde_json::to_value(&params.options).expect("JSON");
                    assert_eq!(given, Value::from_iter(all.clone()), "{way}");
                }
                Err(why) => {
                    assert!(!option.is_for(kind), "{way} refused {} for {port}: {why}", option.key);
                    let expected = format!("applies only to {}, not to {port}", option.takers());
                    assert!(why.contains(&expected) && names(&why, option.key), "{way}: {why}");
                }
            });
        }
    }
}

/// Objective: values of another type or out of range are refused by the option's name.
#[test]
fn wrong_values_are_refused_by_the_options_name() {
    for option in OPTIONS {
        let port = option.kinds().map_or("a", |kinds| kinds[0].example);
        // Some options accept any text.
        for value in bad(option).into_iter().filter(|value| !option.shape.admits(value)) {
            ways(port, &[(option.key, value.clone())], |outcome, way| match outcome {
                // On the command line, every value is text.
                Ok(_) => {
                    let is_right = option.shape.admits(&Value::String(value.to_string()));
                    assert!(way == "the command line" && is_right, "{way}: {} = {value}", option.key)
                }
                Err(why) => assert!(names(&why, option.key), "{way}: {} = {value}: {why}", option.key),
            });
        }
    }
}

/// Objective: options that exclude each other are refused, and the error names both.
#[test]
fn options_that_exclude_each_other() {
    let mut pairs = 0;
    for option in OPTIONS {
        for key in option.excludes {
            let other = AttachOption::find(key).expect("an option");
            let takes_both = |kind: &&SpecKind| option.is_for(kind) && other.is_for(kind);
            let kind = SpecKind::ALL.iter().find(takes_both).expect("a kind that takes both");
            ways(kind.example, &[(option.key, good(option)), (other.key, good(other))], |outcome, way| {
                let why = outcome.expect_err(way);
                assert!(names(&why, option.key) && names(&why, key), "{way}: {why}");
            });
            pairs += 1;
        }
    }
    assert_eq!(pairs, 16);
}

/// Objective: unknown keys, overlong names and invalid names are refused, and the error names them.
#[test]
fn unknown_and_too_long() {
    let long = "n".repeat(64);
    ways("a", &[("velocity", json!(1))], |outcome, way| assert!(names(&outcome.expect_err(way), "velocity"), "{way}"));
    for name in [long.as_str(), "a/b", ""] {
        ways("a", &[("name", json!(name))], |outcome, way| assert!(names(&outcome.expect_err(way), "name"), "{way}"));
    }
    for port in [format!("tap:{long}"), long.clone(), format!("vhost:/{}", long.repeat(2))] {
        for outcome in [command_line(&port, &[]), in_json(&port, &[])] {
            assert!(outcome.is_err_and(|why| why.contains("invalid port")), "{port}");
        }
        let why = in_toml(&port, &[]).expect_err(&port);
        assert!(why.contains("invalid port") && why.contains("line 3"), "{why}");
    }
    let text = format!("[[port]]\nport = 'a'\nswitch = 'vale{long}'");
    let why = ConfigFile::parse(&text).expect_err("too long").to_string();
    assert!(why.contains("invalid switch") && why.contains("line 3"), "{why}");
}

/// Objective: an option that is given twice is refused, and the error names it; a port with both a switch and a backend
/// is refused, too.
#[test]
fn duplicates_are_refused_by_name() {
    let twice = [("rings", json!(1)), ("rings", json!(2))];
    assert!(command_line("a", &twice).is_err_and(|why| why.contains("--rings")));
    assert!(in_toml("a", &twice).is_err_and(|why| why.contains("rings") && why.contains("line 5")));
    let both = ConfigFile::parse("[[port]]\nswitch='vale0'\nport='ptnet:/p'\nbackend='netmap:eth0'");
    assert!(both.is_err_and(|why| why.to_string().contains("backend") && why.to_string().contains("line 2")));
}

/// Objective: each option has documentation, and a flag of its own.
#[test]
fn rows_are_whole() {
    let mut flags: Vec<_> = OPTIONS.iter().map(AttachOption::flag).collect();
    flags.sort_unstable();
    flags.dedup();
    assert_eq!(flags.len(), OPTIONS.len());
    for option in OPTIONS {
        assert!(option.doc().ends_with('.') && option.kinds().is_none_or(|kinds| !kinds.is_empty()), "{}", option.key);
        assert_eq!(option.shape == OptionShape::Flag, option.value_name.is_empty(), "{}", option.key);
        assert!(option.excludes.iter().all(|key| AttachOption::find(key).is_some()), "{}", option.key);
    }
}

fn args(words: &[&str]) -> AttachArgs {
    let command = AttachArgs::augment_args(clap::Command::new("attach"));
    let matches = command.try_get_matches_from(std::iter::once(&"attach").chain(words)).unwrap();
    AttachArgs::from_arg_matches(&matches).unwrap()
}

/// Objective: if a port for programs has the name of an interface, a warning shows the right command for attaching the
/// interface; for other ports, there is no warning.
#[test]
fn a_port_beside_an_interface_is_told() {
    let said = warning(&args(&["lan", "lo"])).unwrap();
    assert!(
        said.contains("'netvale attach lan netmap:lo'") && said.contains("'netvale attach lan tap:NAME'"),
        "{said}"
    );
    for words in [["lan", "netmap:lo"], ["lan", "tap:lo"], ["lan", "null:lo"], ["lan", "nosuch-0"]] {
        assert_eq!(warning(&args(&words)), None, "{words:?}");
    }
}

/// Objective: if a port's full name is given where the switch's name is expected, the error shows the right form.
#[test]
fn right_forms_are_told() {
    let why = params(&args(&["vale7:foo", "null:"])).unwrap_err().to_string();
    assert!(why.contains("found the port vale7:foo"), "{why}");
    let file = ConfigFile::parse("[[port]]\nswitch = 'vale7:foo'\nport = 'null:'").unwrap_err().to_string();
    assert!(file.contains("use vale7 as the switch, and set name to foo") && file.contains("line 2"), "{file}");
}

/// Objective: names of users and groups are sent as numbers, even if they were added after the daemon's start; other
/// words are sent unchanged.
#[test]
fn names_of_users_are_sent_as_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("passwd");
    std::fs::write(&file, "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:1::/:/bin/sh\n").unwrap();
    let number = |name: &str| super::number_of(name.to_owned(), file.to_str().unwrap());
    assert_eq!(["libvirt-qemu", "root", "libvirt", "7"].map(number), ["64055", "0", "libvirt", "7"]);
}
