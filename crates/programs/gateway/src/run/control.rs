//! Execution of the requests that clients of the control socket send to a running gateway.

use serde::Serialize;
use serde_json::{Value, json};

use super::Gateway;
use crate::control::message::ControlRequest;
use crate::control::stats::GatewayStats;
use crate::core::FlowReview;
use crate::dhcp::book::BoundLease;
use crate::flows::OpenFlow;
use crate::guests::GuestResource;
use crate::policy::{EgressPolicy, EgressRule, MAX_RULES};
use crate::rates::rule::{self, LimitRule, LimitRules};
use crate::slots::SlotId;

/// Maximum number of flows in a list.
const MAX_LISTED: usize = 16_384;

impl Gateway {
    /// Executes a client's next request, if there is one.
    pub(super) fn serve_control(&mut self, id: SlotId) {
        let Some(control) = &mut self.control else { return };
        let Some(request) = control.next(&mut self.core, id) else { return };
        let follows = request == Ok(ControlRequest::Follow);
        let answer = request.and_then(|request| self.obey(request));
        let Some(control) = &mut self.control else { return };
        control.answer(&mut self.core, id, &answer);
        if follows {
            control.follow(&mut self.core, id);
        }
    }

    /// Executes a request.
    ///
    /// # Errors
    /// The reason why the request cannot be executed, and what to do.
    pub fn obey(&mut self, request: ControlRequest) -> Result<Value, String> {
        match request {
            ControlRequest::Rules => Ok(json!({"rules": self.rules()})),
            ControlRequest::Limit { rule } => self.add_limit(&rule),
            ControlRequest::Allow { rule } => self.add_rule(&rule, true),
            ControlRequest::Deny { rule } => self.add_rule(&rule, false),
            ControlRequest::Remove { rule } => self.remove_rule(&rule),
            ControlRequest::SetRules { rules } => self.set_rules(&rules),
            ControlRequest::Publish { rule } => self.publish(&rule),
            ControlRequest::Unpublish { rule } => self.unpublish(&rule),
            ControlRequest::Published => Ok(json!({"published": texts(self.publisher.rules())})),
            ControlRequest::Leases => Ok(json!({"leases": self.leases()})),
            ControlRequest::Stats => Ok(json!(self.stats())),
            ControlRequest::Flows { most } => Ok(self.flows(most.unwrap_or(MAX_LISTED).min(MAX_LISTED))),
            ControlRequest::Follow => Ok(json!({})),
            ControlRequest::Names => Ok(json!({"zones": self.names.zones.all().collect::<Vec<_>>()})),
            ControlRequest::SetNames { zone } => {
                self.names.zones.set(zone).map(|()| json!({})).map_err(|error| error.to_string())
            }
        }
    }

    fn rules(&self) -> Vec<String> {
        let mut rules = texts(self.core.policy.rules());
        rules.extend(texts(self.core.rates.rules().rules()));
        rules
    }

    fn has_room(&self) -> Result<(), String> {
        if self.core.policy.rules().len() + self.core.rates.rules().len() < MAX_RULES {
            Ok(())
        } else {
            Err(format!("the gateway has {MAX_RULES} rules; remove one first"))
        }
    }

    fn add_limit(&mut self, text: &str) -> Result<Value, String> {
        let rule: LimitRule = text.parse().map_err(|error| format!("{error}"))?;
        let mut rules = self.core.rates.rules().clone();
        if !rules.has(&rule.guests) {
            self.has_room()?;
        }
        rules.add(rule);
        Ok(self.change_limits(rules))
    }

    /// Sets the limits of all flows, including the open flows; no flow ends because of the new limits.
    fn change_limits(&mut self, rules: LimitRules) -> Value {
        let core = &mut self.core;
        let released = core.rates.set_rules(rules, &core.flows.ports, core.now);
        self.tcp.grant(core, released);
        json!({"ended": 0})
    }

    fn add_rule(&mut self, text: &str, allow: bool) -> Result<Value, String> {
        let rule = EgressRule::parse(text, allow).map_err(|error| error.to_string())?;
        self.has_room()?;
        let mut policy = self.core.policy.clone();
        policy.add(rule);
        Ok(self.change_rules(policy))
    }

    fn remove_rule(&mut self, text: &str) -> Result<Value, String> {
        if let Some(limit) = limit_of(text) {
            let mut rules = self.core.rates.rules().clone();
            let removed = rule::named(limit).is_some_and(|guests| rules.remove(&guests));
            return if removed { Ok(self.change_limits(rules)) } else { Err(no_rule(text)) };
        }
        let rule: EgressRule = text.parse().map_err(|_| no_rule(text))?;
        let mut policy = self.core.policy.clone();
        if policy.remove(&rule) { Ok(self.change_rules(policy)) } else { Err(no_rule(text)) }
    }

    fn set_rules(&mut self, texts: &[String]) -> Result<Value, String> {
        if texts.len() > MAX_RULES {
            return Err(format!("there are {} rules; expected at most {MAX_RULES}", texts.len()));
        }
        let mut limits = LimitRules::default();
        let mut rules = Vec::new();
        for text in texts {
            match limit_of(text) {
                Some(limit) => limits.add(limit.parse().map_err(|error| format!("{error}"))?),
                None => rules.push(
                    text.parse::<EgressRule>()
                        .map_err(|error| format!("{error}; begin each with allow, deny or limit"))?,
                ),
            }
        }
        let mut policy = self.core.policy.clone();
        policy.set(rules);
        self.change_limits(limits);
        Ok(self.change_rules(policy))
    }

    /// Sets the policy, and ends the open flows that it does not allow.
    fn change_rules(&mut self, policy: EgressPolicy) -> Value {
        let core = &mut self.core;
        core.policy = policy;
        let mut review = FlowReview::default();
        let ended = self.tcp.end_refused(core, &mut review)
            + self.udp.end_refused(core, &mut review)
            + self.echo.end_refused(core, &mut review);
        core.link.sync();
        json!({"ended": ended})
    }

    fn publish(&mut self, text: &str) -> Result<Value, String> {
        let rule = text.parse().map_err(|error| format!("{error}"))?;
        self.publisher.add(&self.core, rule).map_err(|error| error.to_string())?;
        Ok(json!({}))
    }

    fn unpublish(&mut self, text: &str) -> Result<Value, String> {
        if self.publisher.remove(&mut self.core, text) {
            Ok(json!({}))
        } else {
            Err(format!("no port is published as {text:?}; list those that are with `netvale publish`"))
        }
    }

    fn leases(&self) -> Vec<Value> {
        let leases = self.dhcp.iter().flat_map(|dhcp| dhcp.bound(self.core.now)).map(lease_json);
        leases.chain(self.dhcp6.iter().flat_map(|dhcp6| dhcp6.bound(self.core.now)).map(lease_json)).collect()
    }

    fn lease_count(&self) -> usize {
        let of_v4 = self.dhcp.iter().map(|dhcp| dhcp.bound(self.core.now).count());
        of_v4.chain(self.dhcp6.iter().map(|dhcp6| dhcp6.bound(self.core.now).count())).sum()
    }

    fn stats(&self) -> GatewayStats {
        let counts = self.core.flows.counts();
        let open = self.open_flows().fold([counts.sent, counts.received], |[sent, received], flow| {
            [sent + flow.bytes.sent, received + flow.bytes.received]
        });
        let used = |resource| self.core.guests.total(resource);
        let reasons = self.core.flows.reasons().iter();
        GatewayStats {
            tcp: used(GuestResource::Tcp),
            udp: used(GuestResource::Udp),
            pings: used(GuestResource::Ping),
            questions: used(GuestResource::Question),
            resolved: self.core.resolved.len() as u64,
            leases: self.lease_count() as u64,
            opened: counts.opened,
            refused: counts.refused,
            reasons: reasons.map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            closed: counts.closed,
            sent: open[0],
            received: open[1],
            queries: self.names.counts,
            dropped: self.core.rates.counts().dropped,
            waits: self.core.rates.counts().waits,
            lost_frames: self.core.link.lost(),
        }
    }

    fn flows(&self, most: usize) -> Value {
        let count = self.open_flows().count();
        let listed: Vec<_> =
            self.open_flows().take(most).map(|flow| flow.to_json(&self.core.flows.ports, self.core.now)).collect();
        json!({"more": count - listed.len(), "flows": listed})
    }

    fn open_flows(&self) -> impl Iterator<Item = OpenFlow> {
        let outward = self.tcp.open_flows().chain(self.udp.open_flows()).chain(self.echo.open_flows());
        outward.chain(self.publisher.open_flows())
    }
}

fn lease_json<A: Serialize>(lease: BoundLease<'_, A>) -> Value {
    json!({"ip": lease.address, "mac": lease.mac.to_string(), "name": lease.name, "seconds": lease.left.as_secs()})
}

/// Returns what follows the verb of a rule that limits guests; `None` if the rule has another verb.
fn limit_of(text: &str) -> Option<&str> {
    let (verb, rule) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    (verb == rule::VERB).then_some(rule)
}

fn texts<T: ToString>(things: impl IntoIterator<Item = T>) -> Vec<String> {
    things.into_iter().map(|thing| thing.to_string()).collect()
}

fn no_rule(text: &str) -> String {
    format!("there is no rule {text:?}; list the rules with `netvale egress`, and give the verb, too: allow RULE")
}
