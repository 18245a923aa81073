//! The file's JSON Schema, `docs/reference/config.schema.json`, made from the tables of keys and options.

use netvale_control::options::{AttachOption, Kind, OPTIONS, Shape};
use serde_json::{Map, Value, json};

use super::{KEYS, Key};

/// Makes the schema (draft 2020-12), as text.
#[must_use]
pub fn schema() -> String {
    let mut file = keys("");
    file.insert("sockets".into(), table(keys("sockets"), "Who may connect."));
    file.insert("switch".into(), table(keys("switch"), "What all switches have in common."));
    file.insert(
        "quota".into(),
        table(keys("quota"), "What each user may have who is neither root nor the daemon's own."),
    );
    let ports = json!({"type": "array", "items": port(), "description": "Ports attached at start."});
    file.insert("port".into(), ports);
    let mut schema = table(file, "The configuration file of `netvale up`.");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("netvale");
    format!("{schema:#}\n")
}

fn table(properties: Map<String, Value>, description: &str) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false, "description": description})
}

fn property(shape: Shape, doc: &str, default: &str) -> Value {
    let mut property = shape.schema();
    let default = if default.is_empty() { String::new() } else { format!(" Default: {default}.") };
    property["description"] = format!("{doc}{default}").into();
    property
}

fn keys(table: &str) -> Map<String, Value> {
    let keys = KEYS.iter().filter(|key| key.table == table);
    keys.map(|key| (key.name.to_owned(), of_key(key))).collect()
}

fn of_key(key: &Key) -> Value {
    let mut property = property(key.shape, key.doc, key.default);
    if key.shape == Shape::Policies {
        let policies = options(|option| option.is_policy());
        property["additionalProperties"] = table(policies, "Policies of a switch's ports.");
    }
    property
}

fn options(which: impl Fn(&AttachOption) -> bool) -> Map<String, Value> {
    let options = OPTIONS.iter().filter(|option| which(option));
    options.map(|o| (o.key.to_owned(), property(o.shape, o.doc(), o.default))).collect()
}

fn port() -> Value {
    let mut properties = options(|_| true);
    properties.insert("port".into(), property(Shape::Text, "What to attach, as for `netvale attach`.", ""));
    properties.insert("switch".into(), property(Shape::Text, "The switch, such as vale0; none with `backend`.", ""));
    let mut port = table(properties, "A port.");
    port["required"] = json!(["port"]);
    port["dependentSchemas"] = OPTIONS.iter().filter_map(|option| Some((option.key, condition(option)?))).collect();
    port
}

/// The condition on a port that has this option.
fn condition(option: &AttachOption) -> Option<Value> {
    let mut condition = json!({});
    if option.kinds.len() < Kind::ALL.len() {
        let pattern = option.kinds.iter().map(|kind| kind.pattern()).collect::<Vec<_>>().join("|");
        condition["properties"] = json!({"port": {"pattern": pattern}});
    }
    if !option.excludes.is_empty() {
        let others: Vec<_> = option.excludes.iter().map(|key| json!({"required": [key]})).collect();
        condition["not"] = json!({"anyOf": others});
    }
    (condition != json!({})).then_some(condition)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::File;
    use super::*;

    /// Objective: the schema in the tree matches the tables; `UPDATE=1` writes it.
    #[test]
    fn is_current() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.schema.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, schema()).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap();
        assert!(there == schema(), "UPDATE=1 cargo test -p netvale-daemon --lib schema writes {}", file.display());
    }

    /// Objective: the table has exactly the keys that are read, with their types.
    #[test]
    fn keys_are_those_that_are_read() {
        for key in KEYS {
            let value = match key.shape {
                Shape::Flag => "true",
                Shape::Texts => "['x']",
                Shape::Numbers => "[1]",
                Shape::Text => "'x'",
                Shape::Policies => "{x = {isolated = true}}",
                _ => "9",
            };
            let head = if key.table.is_empty() { String::new() } else { format!("[{}]\n", key.table) };
            File::parse(&format!("{head}{} = {value}", key.name)).unwrap();
            assert!(File::parse(&format!("{head}{} = {{x = {{mtu = 9}}}}", key.name)).is_err(), "{}", key.name);
        }
        for table in ["", "sockets", "switch", "quota"] {
            let head = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
            let known = File::parse(&format!("{head}unknown = 1")).unwrap_err().to_string();
            let names = known.split("expected").nth(1).unwrap().split('`').skip(1).step_by(2);
            for name in names.filter(|name| !["sockets", "switch", "quota", "port"].contains(name)) {
                assert!(KEYS.iter().any(|key| key.table == table && key.name == name), "{table}.{name}");
            }
        }
    }
}
