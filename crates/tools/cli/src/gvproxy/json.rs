//! JSON as Go's package encoding/json reads and writes it: field names match in upper and lower case, unknown fields
//! and bytes after the first value are ignored, and errors have Go's texts.

use serde::Serialize;
use serde_json::{Map, Value};

/// Returns the first value of a body.
///
/// # Errors
/// Returns the message that Go would return.
pub(super) fn first_value(body: &[u8]) -> Result<Value, String> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Ok(value),
        None => Err("EOF".to_owned()),
        Some(Err(why)) if why.is_eof() => Err("unexpected EOF".to_owned()),
        Some(Err(why)) => Err(syntax_error(body, &why)),
    }
}

fn syntax_error(body: &[u8], why: &serde_json::Error) -> String {
    let line = body.split(|byte| *byte == b'\n').nth(why.line().saturating_sub(1)).unwrap_or_default();
    let found = line.get(why.column().saturating_sub(1)).copied().map_or('?', char::from);
    let text = why.to_string();
    let place = [
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("expected `:`", "after object key"),
        ("expected value", "looking for beginning of value"),
    ];
    let place = place.iter().find(|(known, _)| text.starts_with(known));
    match place {
        Some((_, place)) => format!("invalid character '{found}' {place}"),
        None => format!("invalid character '{found}': {why}"),
    }
}

/// Serializes a value as one line, with `<`, `>` and `&` escaped.
pub(super) fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_default();
    format!("{}\n", text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"))
}

/// A JSON object in a request, and the name of the object's type in Go's errors.
#[derive(Debug)]
pub(super) struct JsonObject {
    fields: Map<String, Value>,
    name: &'static str,
}

impl JsonObject {
    /// Takes the object out of a JSON value; null counts as an empty object. `kind` is the object's type in Go, and
    /// `name` the type's name without its package.
    ///
    /// # Errors
    /// The value is not an object: returns Go's message.
    pub(super) fn of(value: Value, kind: &str, name: &'static str) -> Result<JsonObject, String> {
        match value {
            Value::Object(fields) => Ok(JsonObject { fields, name }),
            Value::Null => Ok(JsonObject { fields: Map::new(), name }),
            other => Err(format!("json: cannot unmarshal {} into Go value of type {kind}", noun(&other))),
        }
    }

    /// Returns the value of a field, whose name may be in upper or lower case; `None` if the field is missing.
    pub(super) fn value(&self, field: &str) -> Option<&Value> {
        self.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case(field)).map(|(_, value)| value)
    }

    /// Returns the text of a field of type `kind`; empty if the field is missing.
    ///
    /// # Errors
    /// The value is not a string: returns Go's message.
    pub(super) fn text(&self, field: &str, kind: &str) -> Result<String, String> {
        match self.value(field) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) => Err(self.wrong(field, other, kind)),
        }
    }

    /// Returns Go's message for a value of the wrong type.
    pub(super) fn wrong(&self, field: &str, value: &Value, kind: &str) -> String {
        format!("json: cannot unmarshal {} into Go struct field {}.{field} of type {kind}", noun(value), self.name)
    }
}

fn noun(value: &Value) -> &'static str {
    match value {
        // `null` does not occur here, since it counts as a missing value.
        Value::Null | Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_gos_words() {
        for (body, expected) in [
            ("", "EOF"),
            (" \n", "EOF"),
            ("{", "unexpected EOF"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{1}", "invalid character '1' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
        ] {
            assert_eq!(first_value(body.as_bytes()), Err(expected.to_owned()), "{body}");
        }
    }

    #[test]
    fn fields_are_found_in_any_case_and_the_rest_is_ignored() {
        let value = first_value(br#"{"LOCAL":":80","more":1} {"#).unwrap();
        let object = JsonObject::of(value, "types.ExposeRequest", "ExposeRequest").unwrap();
        assert_eq!(object.text("local", "string"), Ok(":80".to_owned()));
        assert_eq!(object.text("remote", "string"), Ok(String::new()));
        let wrong = "json: cannot unmarshal number into Go struct field ExposeRequest.more of type string";
        assert_eq!(object.text("more", "string"), Err(wrong.to_owned()));
    }

    #[test]
    fn characters_of_html_are_escaped() {
        assert_eq!(line(&"a<b>&c"), "\"a\\u003cb\\u003e\\u0026c\"\n");
    }
}
