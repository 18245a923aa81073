//! The options of a network (`podman network create -o KEY=VALUE`), and the options of one container, which override
//! those of the network. podman passes all values as texts.
//!
//! The settings ([`PodmanSettings`]) are their parsed values, with defaults.

use std::collections::BTreeMap;
use std::path::Path;

use netvale_control::options::{AttachOption, OptionShape};
use netvale_portspec::SwitchName;
use netvale_tap::device::MAX_QUEUES;
use serde_json::{Map, Value};

use crate::config::CniConfig;
use crate::error::{CniError, Code};

/// Options in the form in which podman passes them: values by key.
pub type OptionTexts = BTreeMap<String, String>;

/// The options that locate the network. A removal ignores all other options.
const PLACE: [&str; 2] = ["switch", "run_dir"];
/// The default metric of routes, the same as in netavark's own drivers.
const METRIC: u32 = 100;

/// The parsed options.
#[derive(Clone, Debug, PartialEq)]
pub struct PodmanSettings {
    /// Switch, run directory, MTU, queues and GRO; the other members have their defaults.
    pub config: CniConfig,
    /// Whether to omit the default routes through the subnets' gateways.
    pub no_default_route: bool,
    /// Metric of routes for which podman gives no metric.
    pub metric: u32,
    /// Policies of the port, as options of the daemon's `port.set`.
    pub policies: Map<String, Value>,
}

impl Default for PodmanSettings {
    fn default() -> PodmanSettings {
        PodmanSettings {
            config: CniConfig { bridge: "vale0".into(), ..CniConfig::default() },
            no_default_route: false,
            metric: METRIC,
            policies: Map::new(),
        }
    }
}

fn bad(text: String) -> CniError {
    CniError::new(Code::Config, text)
}

impl PodmanSettings {
    /// Parses all options.
    ///
    /// # Errors
    /// [`Code::Config`] with the unknown or invalid option.
    pub fn read(options: &OptionTexts) -> Result<PodmanSettings, CniError> {
        let mut settings = PodmanSettings::default();
        options.iter().try_for_each(|(key, text)| settings.put(key, text))?;
        Ok(settings)
    }

    /// Parses only the options that locate the network; all other settings have their defaults.
    ///
    /// # Errors
    /// As [`PodmanSettings::read`].
    pub fn place(options: &OptionTexts) -> Result<PodmanSettings, CniError> {
        let mut options = options.clone();
        options.retain(|key, _| PLACE.contains(&key.as_str()));
        PodmanSettings::read(&options)
    }

    fn put(&mut self, key: &str, text: &str) -> Result<(), CniError> {
        match key {
            "switch" => {
                SwitchName::parse(text).map_err(|e| bad(format!("switch: {e:#}")))?;
                text.clone_into(&mut self.config.bridge);
            }
            "run_dir" if Path::new(text).is_absolute() => self.config.run_dir = Some(text.into()),
            "run_dir" => return Err(wrong(key, text, "a path that begins with '/'")),
            "mtu" => self.config.mtu = number(key, text, 68, 65_535)?,
            "queues" => self.config.queues = number(key, text, 1, MAX_QUEUES)?,
            "metric" => self.metric = number(key, text, 0, u32::MAX)?,
            "gro" => self.config.gro = flag(key, text)?,
            "no_default_route" => self.no_default_route = flag(key, text)?,
            _ => {
                let shape = policy(key)?.shape;
                let value = shape.parse(text).map_err(|_| wrong(key, text, &shape.to_string()))?;
                self.policies.insert(key.to_owned(), value);
            }
        }
        Ok(())
    }
}

/// Returns the policy of this name. Filters are refused, since only the command line can compile them, and so is
/// `info`, since it is set to the container's name.
fn policy(key: &str) -> Result<&'static AttachOption, CniError> {
    let can_be_text = |option: &&AttachOption| option.is_for_frames() && !matches!(option.shape, OptionShape::List(_));
    AttachOption::find(key).filter(can_be_text).ok_or_else(|| {
        let known = "switch, run_dir, mtu, queues, gro, metric, no_default_route, and policies such as access or guard";
        CniError::advised(Code::Config, format!("{key}: unknown network option"), format!("known: {known}"))
    })
}

fn wrong(key: &str, text: &str, expected: &str) -> CniError {
    let said: String = text.chars().take(80).collect();
    bad(format!("{key}: expected {expected}, found {said:?}"))
}

fn number(key: &str, text: &str, least: u32, most: u32) -> Result<u32, CniError> {
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| wrong(key, text, &OptionShape::Number(least, most).to_string()))
}

fn flag(key: &str, text: &str) -> Result<bool, CniError> {
    match text {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err(wrong(key, text, "true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn texts(pairs: &[(&str, &str)]) -> OptionTexts {
        pairs.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
    }

    /// Objective: each option is parsed; missing options have their defaults.
    #[test]
    fn each_option_is_read() {
        assert_eq!(PodmanSettings::read(&texts(&[])).unwrap(), PodmanSettings::default());
        let all = texts(&[
            ("switch", "lab.1"),
            ("run_dir", "/srv/run"),
            ("mtu", "9000"),
            ("queues", "2"),
            ("gro", "true"),
            ("no_default_route", "1"),
            ("metric", "0"),
            ("access", "10"),
            ("isolated", "on"),
            ("guard", "ip,arp"),
            ("rate_in", "80mbit"),
        ]);
        let policies = json!({"access": 10, "isolated": true, "guard": "ip,arp", "rate_in": "80mbit"});
        let expected = PodmanSettings {
            config: CniConfig {
                bridge: "lab.1".into(),
                run_dir: Some("/srv/run".into()),
                mtu: 9000,
                queues: 2,
                gro: true,
                ..CniConfig::default()
            },
            no_default_route: true,
            metric: 0,
            policies: policies.as_object().cloned().unwrap(),
        };
        assert_eq!(PodmanSettings::read(&all).unwrap(), expected);
    }

    /// Objective: an unknown or invalid option is refused, and the error names the option; a removal ignores options
    /// that it does not need.
    #[test]
    fn unknown_and_wrong_options_are_refused_by_name() {
        for (key, text) in [
            ("switch", ""),
            ("switch", "a b"),
            ("switch", "tap"),
            ("run_dir", ""),
            ("run_dir", "run"),
            ("mtu", "67"),
            ("mtu", "65536"),
            ("mtu", "-1"),
            ("mtu", ""),
            ("mtu", "big"),
            ("queues", "0"),
            ("queues", "257"),
            ("metric", "x"),
            ("gro", "yes"),
            ("no_default_route", ""),
            ("access", "0"),
            ("access", "4095"),
            ("isolated", "maybe"),
            ("guard", "everything"),
            ("rate_in", "fast"),
            ("rings", "2"),
            ("netns", "/run/netns/x"),
            ("socket_mode", "0666"),
            ("info", "mine"),
            ("filter_in", "drop arp"),
            ("isolate", "true"),
            ("", ""),
        ] {
            let options = texts(&[(key, text)]);
            let error = PodmanSettings::read(&options).expect_err(key).text();
            assert!(error.starts_with(key), "{key}={text}: {error}");
            assert_eq!(PodmanSettings::place(&options).is_err(), PLACE.contains(&key), "{key}={text}");
        }
    }
}
