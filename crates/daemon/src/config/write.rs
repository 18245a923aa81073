//! Writes a configuration as an object that conforms to the file's schema, and as the text of a file.

use std::collections::BTreeMap;

use netvale_control::options::{AttachOption, CompiledRule, ConfiguredRule, WrittenValue};
use netvale_control::types::{AttachParams, Policies};
use netvale_portspec::is_hidden;
use serde_json::{Map, Value, json};

use super::{Config, ConfigFile, SETTINGS};

/// Returns the settings that differ from their defaults, and the given ports.
#[must_use]
pub fn json(config: &Config, ports: &[AttachParams]) -> Value {
    let mut file = Map::new();
    let usual = ConfigFile::default().into_config();
    for setting in SETTINGS {
        let value = setting.value(config);
        if value.is_null() || value == setting.value(&usual) {
            continue;
        }
        let place = match setting.table {
            "" => &mut file,
            table => match file.entry(table).or_insert_with(|| json!({})) {
                Value::Object(table) => table,
                _ => continue,
            },
        };
        place.insert(setting.name.to_owned(), value);
    }
    if !ports.is_empty() {
        file.insert("port".into(), ports.iter().map(port).collect());
    }
    Value::Object(file)
}

fn port(params: &AttachParams) -> Value {
    let mut port = Map::new();
    if !params.switch.is_empty() {
        port.insert("switch".into(), params.switch.as_str().into());
    }
    port.insert("port".into(), params.port.as_str().into());
    if let Ok(Value::Object(options)) = serde_json::to_value(&params.options) {
        port.extend(options);
    }
    Value::Object(port)
}

/// Returns the source text of a filter rule, which `netvale apply` and `netvale up` compile again. If the source text
/// is unknown, returns the compiled program as text.
fn in_words(rule: &WrittenValue<ConfiguredRule>) -> String {
    match &**rule {
        ConfiguredRule::Compiled(CompiledRule { drops, expression: Some(expression), .. }) => {
            format!("{} {expression}", if *drops { "drop" } else { "pass" })
        }
        _ => rule.text().to_owned(),
    }
}

/// Returns the compiled rules of ports, each under the source text that [`text`] writes for the rule.
pub fn programs<'a>(policies: impl Iterator<Item = &'a Policies>) -> BTreeMap<String, String> {
    let rules = policies.flat_map(Policies::rules).flatten().flatten();
    rules.map(|rule| (in_words(rule), rule.text().to_owned())).collect()
}

fn is_rules(key: &str) -> bool {
    matches!(key, "filter_in" | "filter_out")
}

/// Returns the filter rules of a port as source text.
fn rules(value: &Value) -> Value {
    let list = value.as_array().into_iter().flatten();
    let words = |rule: &Value| Some(in_words(&WrittenValue::read(rule.as_str()?)?).into());
    list.map(|rule| words(rule).unwrap_or_else(|| rule.clone())).collect()
}

/// Returns the configuration as text, with textual rules. `above` contains comment lines for the start of the file;
/// `of_port` returns a comment on a port by its index, or `None` for no comment.
#[must_use]
pub fn text(file: &Value, above: &[String], of_port: impl Fn(usize) -> Option<String>) -> String {
    let mut text: String = above.iter().map(|line| comment(line)).collect();
    let Some(file) = file.as_object() else { return text };
    let is_plain =
        |value: &Value| !value.is_object() && !value.as_array().is_some_and(|all| all.iter().any(Value::is_object));
    text += &lines(file.iter().filter(|(_, value)| is_plain(value)));
    for (name, table) in file.iter().filter_map(|(name, value)| Some((name, value.as_object()?))) {
        text += &format!("\n[{name}]\n{}", lines(table.iter()));
    }
    for (index, port) in file.get("port").and_then(Value::as_array).into_iter().flatten().enumerate() {
        let said = of_port(index).map(|said| comment(&said)).unwrap_or_default();
        let keys = port.as_object().into_iter().flatten();
        text += &format!("\n{said}[[port]]\n{}", lines(keys));
    }
    text
}

/// Returns a TOML comment line with this text.
fn comment(said: &str) -> String {
    let said: String = said.chars().map(|c| if is_hidden(c) { ' ' } else { c }).collect();
    format!("# {said}").trim_end().to_owned() + "\n"
}

fn lines<'a>(entries: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    let mut entries: Vec<_> = entries.collect();
    // The switch and the name of the port precede the port's options.
    entries.sort_by_key(|(key, _)| match key.as_str() {
        "switch" => 0,
        "port" => 1,
        _ => 2,
    });
    let value = |key: &str, value: &Value| if is_rules(key) { toml(&rules(value)) } else { toml(value) };
    entries.into_iter().map(|(key, is)| format!("{key} = {}\n", value(key, is))).collect()
}

/// Returns a value in TOML. TOML writes strings, numbers and lists as JSON does, except that DEL must be escaped.
fn toml(value: &Value) -> String {
    let Some(table) = value.as_object() else { return value.to_string().replace('\u{7f}', "\\u007f") };
    let value = |key: &str, is: &Value| if is_rules(key) { toml(&rules(is)) } else { toml(is) };
    let entries: Vec<_> = table.iter().map(|(key, is)| format!("{} = {}", toml(&json!(key)), value(key, is))).collect();
    format!("{{{}}}", entries.join(", "))
}

/// Returns a port's attach parameters in words, e.g. `tap:nv0, mtu 9000`, without the options that `but` names.
#[must_use]
pub fn words(params: &AttachParams, but: &[&str]) -> String {
    let mut words = vec![params.port.clone()];
    for option in netvale_control::options::OPTIONS.iter().filter(|option| !but.contains(&option.key)) {
        words.extend(option.given(&params.options).map(|value| said(option, &value)));
    }
    words.join(", ")
}

fn said(option: &AttachOption, value: &Value) -> String {
    match value {
        Value::Bool(_) => option.key.to_owned(),
        Value::String(text) => format!("{} {text}", option.key),
        list if is_rules(option.key) => format!("{} {}", option.key, rules(list)),
        other => format!("{} {other}", option.key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objective: settings, ports and odd characters survive writing and reading; defaults are not written.
    #[test]
    fn all_settings_survive_writing_and_reading() {
        let text_of = "workers = 2\ncpus = [0, 1]\nuser = \"o\\\\dd \\u007f \\\"u\\\"\"\n[switch]\nshared = ['*']\n\
            ageing_s = 9\n\
            policies = {'*' = {isolated = true}, a-b = {filter_in = ['drop tcp'], storm_bcast = 9}}\n[quota]\n\
            ports = 64\nswitches = 1\n\
            [[port]]\nswitch = 'vale0'\nport = 'tap:nv0'\nmtu = 9000\n[[port]]\nswitch = 'vale0'\n\
            port = \"pcap:in=/s/ \\\"x\\\".pcap\"\nname = 'n'\nspeed = 0.5\nloop = true\n\
            [[port]]\nport = 'ptnet:/p'\nbackend = 'netmap:p{1'\n";
        let config = ConfigFile::parse(text_of).unwrap().into_config();
        let written = json(&config, &config.ports);
        let text = text(&written, &["above\nand more".into()], |index| (index == 1).then(|| "second".into()));
        let again = ConfigFile::parse(&text).unwrap_or_else(|e| panic!("{e} in {text}")).into_config();
        assert_eq!((json(&again, &[]), &again.ports), (json(&config, &[]), &config.ports));
        assert!(text.starts_with("# above and more\n") && text.contains("\n# second\n[[port]]\n"), "{text}");
        assert!(!text.contains("ports = 64") && !text.contains("ageing_s = 300"), "{text}");
        let schema: Value = serde_json::from_str(&super::super::schema()).unwrap();
        let known = |name: &String| schema["properties"].get(name).is_some();
        assert!(written.as_object().unwrap().keys().all(known));
        assert_eq!(json(&ConfigFile::default().into_config(), &[]), json!({}));
    }

    /// Objective: rules are written as configured if their source text is known, and are read back as rules to be
    /// compiled.
    #[test]
    fn rules_are_written_as_configured() {
        let text_of =
            "[[port]]\nswitch='vale0'\nport='a'\nfilter_in=['drop 1,6 0 0 1 # not (host 10.0.0.1)', 'pass 1,6 0 0 1']";
        let config = ConfigFile::parse(text_of).unwrap().into_config();
        let text = text(&json(&config, &config.ports), &[], |_| None);
        assert!(text.contains(r#"filter_in = ["drop not (host 10.0.0.1)","pass 1,6 0 0 1"]"#), "{text}");
        let again = ConfigFile::parse(&text).unwrap_or_else(|e| panic!("{e} in {text}")).into_config();
        let sources = again.ports[0].options.policies.sources().map(WrittenValue::text);
        assert_eq!(sources.collect::<Vec<_>>(), ["drop not (host 10.0.0.1)"]);
        assert!(words(&config.ports[0], &[]).ends_with(r#"filter_in ["drop not (host 10.0.0.1)","pass 1,6 0 0 1"]"#));
    }

    /// Objective: a port in words shows its attach parameters.
    #[test]
    fn a_port_in_words_shows_its_parameters() {
        let config =
            ConfigFile::parse("[[port]]\nswitch='vale0'\nport='tap:x'\nmtu=9000\nlossless=true\nname='n'").unwrap();
        let ports = config.into_config().ports;
        assert_eq!(words(&ports[0], &["name"]), "tap:x, lossless, mtu 9000");
    }
}
