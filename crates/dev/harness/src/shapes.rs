//! Values on both sides of the limits of option shapes, to compare all code that checks values.

use netvale_control::options::OptionShape;
use serde_json::{Value, json};

/// Returns values, each with whether it fits the shape: a value below the range, the lowest and the highest value of
/// the range, a value above the range, and a value of another type.
#[must_use]
pub fn samples(shape: OptionShape) -> Vec<(Value, bool)> {
    let (fit, wrong) = match shape {
        OptionShape::Flag | OptionShape::Switch => {
            (vec![json!(true), json!(false)], vec![json!(1), json!("true"), json!([true])])
        }
        OptionShape::Number(least, most) => {
            let outside = vec![json!(i64::from(least) - 1), json!(i64::from(most) + 1), json!(1_u64 << 40)];
            (vec![json!(least), json!(most)], [outside, vec![json!("x"), json!(1.5), json!([least])]].concat())
        }
        OptionShape::Numbers(least, most) => {
            let outside = vec![json!([i64::from(least) - 1]), json!([i64::from(most) + 1]), json!([least, most + 1])];
            let lengths = vec![json!([]), json!((least..least + 65).collect::<Vec<_>>())];
            let fit = vec![json!([least]), json!([most]), json!((least..least + 64).collect::<Vec<_>>())];
            (fit, [outside, lengths, vec![json!(least), json!(["x"])]].concat())
        }
        OptionShape::OwnersMode => {
            let closed = ["0000", "0066", "0177", "466", "577"].map(Value::from);
            let other = ["0o66", "0o660", "1666", "9", "", "+66", "0800"].map(Value::from);
            let fit = ["0200", "0777", "600", "0660"].map(Value::from);
            (fit.to_vec(), [&closed[..], &other, &[json!(0o660), json!(["0660"])]].concat())
        }
        OptionShape::Text => (vec![json!("x")], vec![json!(7), json!(true), json!(["x"])]),
        OptionShape::Texts => {
            (vec![json!(["x"]), json!(["x", "y"]), json!([])], vec![json!("x"), json!([7]), json!({"x": 1})])
        }
        OptionShape::Policies => {
            let fit = vec![json!({}), json!({"x": {}}), json!({"x": {"isolated": true}})];
            (fit, vec![json!(7), json!({"x": 7}), json!({"x": {"mtu": 9}}), json!({"x": {"isolated": 7}})])
        }
        _ => (Vec::new(), Vec::new()),
    };
    fit.into_iter().map(|value| (value, true)).chain(wrong.into_iter().map(|value| (value, false))).collect()
}

/// Returns the command-line words that give an option of this shape the value, one for each occurrence of its flag.
/// `None` if no word can express the value, for example a number where every word is a valid text.
#[must_use]
pub fn words(shape: OptionShape, value: &Value) -> Option<Vec<String>> {
    match (shape, value) {
        (OptionShape::Number(..), Value::Number(number)) => Some(vec![number.to_string()]),
        (OptionShape::Numbers(..), Value::Array(list)) => {
            Some(vec![list.iter().map(Value::to_string).collect::<Vec<_>>().join(",")])
        }
        (OptionShape::Texts, Value::Array(list)) => list.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        (OptionShape::Number(..) | OptionShape::OwnersMode | OptionShape::Text, Value::String(text)) => {
            Some(vec![text.clone()])
        }
        _ => None,
    }
}
