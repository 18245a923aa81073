//! The JSON Schema of the configuration file, `docs/reference/config.schema.json`, generated from the tables of
//! settings and options.

use netvale_control::options::{AttachOption, OPTIONS, OptionShape};
use serde_json::{Map, Value, json};

use super::{SETTINGS, Setting, TABLES};

/// Generates the schema (draft 2020-12) as text.
#[must_use]
pub fn schema() -> String {
    let mut schema = Value::Null;
    for (name, about) in TABLES {
        let settings = SETTINGS.iter().filter(|setting| setting.table == *name).map(property_of);
        let table = table(settings.collect(), about);
        if name.is_empty() { schema = table } else { schema["properties"][*name] = table }
    }
    schema["properties"]["port"] = json!({"type": "array", "items": port(), "description": "Ports attached at start."});
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("netvale");
    format!("{schema:#}\n")
}

fn table(properties: Map<String, Value>, description: &str) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false, "description": description})
}

fn property(shape: OptionShape, doc: &str, default: &str) -> Value {
    let mut property = shape.schema();
    let default = if default.is_empty() { String::new() } else { format!(" Default: {default}.") };
    property["description"] = format!("{doc}{default}").into();
    property
}

fn property_of(setting: &Setting) -> (String, Value) {
    let mut property = property(setting.shape, setting.doc(), &setting.default());
    if setting.shape == OptionShape::Policies {
        let policies = options(|option| option.is_policy());
        property["additionalProperties"] = table(policies, "Policies of a switch's ports.");
    }
    (setting.name.to_owned(), property)
}

fn options(which: impl Fn(&AttachOption) -> bool) -> Map<String, Value> {
    let options = OPTIONS.iter().filter(|option| which(option));
    options.map(|o| (o.key.to_owned(), property(o.shape, o.doc(), o.default))).collect()
}

fn port() -> Value {
    let mut properties = options(|_| true);
    properties
        .insert("port".into(), property(OptionShape::Text, "The port to attach, in the form of `netvale attach`.", ""));
    properties
        .insert("switch".into(), property(OptionShape::Text, "The switch, e.g. vale0; omit it with `backend`.", ""));
    let mut port = table(properties, "A port.");
    port["required"] = json!(["port"]);
    port["dependentSchemas"] = OPTIONS.iter().filter_map(|option| Some((option.key, condition(option)?))).collect();
    port
}

/// Returns the JSON Schema condition that a port fulfils if it may have this option: a pattern of `port`, or the
/// absence of other options. `None` if every port may have the option.
fn condition(option: &AttachOption) -> Option<Value> {
    let mut condition = json!({});
    if let Some(kinds) = option.kinds() {
        let pattern = kinds.iter().map(|kind| kind.pattern()).collect::<Vec<_>>().join("|");
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

    use super::*;

    /// Objective: the schema in the tree matches the tables; `UPDATE=1` writes the schema.
    #[test]
    fn the_schema_in_the_tree_matches_the_tables() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.schema.json");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&file, schema()).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap();
        assert!(there == schema(), "UPDATE=1 cargo test -p netvale-daemon --lib schema writes {}", file.display());
    }
}
