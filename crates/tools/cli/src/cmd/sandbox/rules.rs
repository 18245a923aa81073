//! Rules and published ports on the command line. This module checks them, and passes them to the gateway as text.

use netvale_gateway::policy::EgressRule;
use netvale_gateway::publish::rule::PublishRule;

use super::SandboxArgs;
use super::network::SandboxNet;

/// Checks a rule that allows or denies flows.
pub(super) fn checked(text: &str, allows: bool) -> Result<String, String> {
    EgressRule::parse(text, allows).map(|_| text.to_owned()).map_err(|why| why.to_string())
}

/// Checks a published port, which is written without a guest: the guest is the command.
pub(super) fn published(text: &str) -> Result<String, String> {
    let expected = || format!("invalid published port {text:?}: expected [ADDRESS:]PORT:PORT[/udp], e.g. 8080:80");
    let whole = with_guest(text, "192.0.0.2", "::2").ok_or_else(expected)?;
    whole.parse::<PublishRule>().map(|_| text.to_owned()).map_err(|_| expected())
}

/// Adds the command's address to a published port. A published port on an IPv6 address of the host leads to the
/// command's IPv6 address.
fn with_guest(text: &str, v4: &str, v6: &str) -> Option<String> {
    let (listen, port) = text.rsplit_once(':')?;
    let guest = if listen.starts_with('[') { format!("[{v6}]") } else { v4.to_owned() };
    Some(format!("{listen}:{guest}:{port}"))
}

/// Returns the gateway's options for these rules. If no rule allows `any`, all destinations that the rules do not allow
/// are denied.
pub(super) fn words(args: &SandboxArgs, net: &SandboxNet) -> Vec<String> {
    let deny_all = (!args.allow.iter().any(|rule| rule == "any")).then_some("any");
    let of = |option: &'static str| move |value: &str| [option.to_owned(), value.to_owned()];
    let v4 = net.v4.map(|address| address.to_string()).unwrap_or_default();
    let v6 = net.v6.map(|address| address.to_string()).unwrap_or_default();
    let published = args.publish.iter().filter_map(|text| with_guest(text, &v4, &v6));
    let allowed = args.allow.iter().map(String::as_str).flat_map(of("--allow"));
    let denied = args.deny.iter().map(String::as_str).chain(deny_all).flat_map(of("--deny"));
    let loopback = args.allow_host_loopback.then(|| "--allow-host-loopback".to_owned());
    allowed.chain(denied).chain(published.flat_map(|text| of("--publish")(&text))).chain(loopback).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::sandbox::tests::parse;

    fn words_of(line: &[&str]) -> String {
        let args = parse(&[line, &["--", "true"]].concat()).unwrap();
        words(&args, &SandboxNet::of(args.addresses)).join(" ")
    }

    #[test]
    fn all_is_denied_unless_any_is_allowed() {
        assert_eq!(words_of(&[]), "--deny any");
        assert_eq!(words_of(&["--allow", "any:443"]), "--allow any:443 --deny any");
        assert_eq!(words_of(&["--allow", "any", "--deny", "any:25"]), "--allow any --deny any:25");
        assert_eq!(words_of(&["--allow-host-loopback"]), "--deny any --allow-host-loopback");
    }

    #[test]
    fn published_ports_lead_to_the_command() {
        assert_eq!(words_of(&["--publish", "8080:80"]), "--deny any --publish 8080:192.0.0.2:80");
        assert_eq!(
            words_of(&["--publish", "[::1]:53:53/udp", "--publish", "127.0.0.1:1:2"]),
            "--deny any --publish [::1]:53:[fd6e:7661:6c65::2]:53/udp --publish 127.0.0.1:1:192.0.0.2:2"
        );
        for bad in ["80", "a:80", "8080:0", "1:2:3:4", "8080:192.0.0.2:80"] {
            assert!(published(bad).is_err(), "{bad}");
        }
    }
}
