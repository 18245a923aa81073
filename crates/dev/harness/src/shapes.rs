//! Values on both sides of the bounds of shapes, to compare everything that validates values.

use netvale_control::options::Shape;
use serde_json::{Value, json};

/// Values, and whether they have that shape: below its bounds, the lowest, the highest, above, and of another type.
#[must_use]
pub fn samples(shape: Shape) -> Vec<(Value, bool)> {
    let (fit, wrong) = match shape {
        Shape::Flag | Shape::Switch => (vec![json!(true), json!(false)], vec![json!(1), json!("true"), json!([true])]),
        Shape::Number(least, most) => {
            let outside = vec![json!(i64::from(least) - 1), json!(i64::from(most) + 1), json!(1_u64 << 40)];
            (vec![json!(least), json!(most)], [outside, vec![json!("x"), json!(1.5), json!([least])]].concat())
        }
        Shape::Numbers(least, most) => {
            let outside = vec![json!([i64::from(least) - 1]), json!([i64::from(most) + 1]), json!([least, most + 1])];
            let lengths = vec![json!([]), json!((least..least + 65).collect::<Vec<_>>())];
            let fit = vec![json!([least]), json!([most]), json!((least..least + 64).collect::<Vec<_>>())];
            (fit, [outside, lengths, vec![json!(least), json!(["x"])]].concat())
        }
        Shape::OwnersMode => {
            let closed = ["0000", "0066", "0177", "466", "577"].map(Value::from);
            let other = ["0o66", "0o660", "1666", "9", "", "+66", "0800"].map(Value::from);
            let fit = ["0200", "0777", "600", "0660"].map(Value::from);
            (fit.to_vec(), [&closed[..], &other, &[json!(0o660), json!(["0660"])]].concat())
        }
        Shape::Text => (vec![json!("x")], vec![json!(7), json!(true), json!(["x"])]),
        Shape::Texts => {
            (vec![json!(["x"]), json!(["x", "y"]), json!([])], vec![json!("x"), json!([7]), json!({"x": 1})])
        }
        Shape::Policies => {
            let fit = vec![json!({}), json!({"x": {}}), json!({"x": {"isolated": true}})];
            (fit, vec![json!(7), json!({"x": 7}), json!({"x": {"mtu": 9}}), json!({"x": {"isolated": 7}})])
        }
        _ => (Vec::new(), Vec::new()),
    };
    fit.into_iter().map(|value| (value, true)).chain(wrong.into_iter().map(|value| (value, false))).collect()
}

/// The words behind a flag of that shape that spell such a value, one per occurrence of the flag. `None` if words
/// cannot spell it: behind a flag, everything is text.
#[must_use]
pub fn words(shape: Shape, value: &Value) -> Option<Vec<String>> {
    match (shape, value) {
        (Shape::Number(..), Value::Number(number)) => Some(vec![number.to_string()]),
        (Shape::Numbers(..), Value::Array(list)) => {
            Some(vec![list.iter().map(Value::to_string).collect::<Vec<_>>().join(",")])
        }
        (Shape::Texts, Value::Array(list)) => list.iter().map(|text| text.as_str().map(str::to_owned)).collect(),
        (Shape::Number(..) | Shape::OwnersMode | Shape::Text, Value::String(text)) => Some(vec![text.clone()]),
        _ => None,
    }
}
