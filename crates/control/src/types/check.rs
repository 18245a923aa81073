//! Checks of a port's parameters that need no other state.

use netvale_portspec::{AttachSpec, Base, Ident, PortSpec, SwitchName};

use super::AttachParams;
use crate::options::kind::SpecKind;
use crate::options::{AttachOption, Misfit, MisfitReason, OPTIONS};

impl AttachParams {
    /// Checks the grammar of all parameters, and that this kind of port takes each option.
    ///
    /// # Errors
    /// The first fault, in the order port, options, name, switch.
    pub fn check(&self) -> Result<AttachSpec, Misfit> {
        let text = |key| move |error| Misfit { key, why: MisfitReason::Text(error) };
        let spec = AttachSpec::parse(&self.port).map_err(text("port"))?;
        let kind = spec.kind();
        OPTIONS.iter().try_for_each(|option| self.check_option(option, kind))?;
        self.options.policies.check()?;
        if let Some(name) = &self.options.name {
            Ident::parse(name).map_err(text("name"))?;
        }
        match &self.options.backend {
            None => self.check_switch()?,
            Some(_) if !self.switch.is_empty() => return Err(Misfit { key: "switch", why: MisfitReason::TwoPlaces }),
            Some(_) => {}
        }
        Ok(spec)
    }

    fn check_switch(&self) -> Result<(), Misfit> {
        let misfit = |why| Misfit { key: "switch", why };
        if let (Some(switch), Some((_, port))) = (SwitchName::of_port(&self.switch), self.switch.split_once(':')) {
            return Err(misfit(MisfitReason::PortForSwitch { switch: switch.to_owned(), port: port.to_owned() }));
        }
        SwitchName::parse(&self.switch).map(drop).map_err(|error| misfit(MisfitReason::Text(error)))
    }

    fn check_option(&self, option: &AttachOption, kind: &SpecKind) -> Result<(), Misfit> {
        let misfit = |why| Err(Misfit { key: option.key, why });
        if option.given(&self.options).is_none() {
            return Ok(());
        }
        if !option.is_for(kind) {
            let port = self.port.chars().take(120).collect();
            return misfit(MisfitReason::Kind { takers: option.takers(), port });
        }
        // A backend that is a switch's port is checked as if attached to that switch.
        let named = self.options.backend.as_deref().map(PortSpec::parse);
        let on_switch = named.is_some_and(|spec| spec.is_ok_and(|spec| matches!(spec.name.base(), Base::Vale { .. })));
        if option.key == "backend" && on_switch {
            return Ok(());
        }
        let given = |key: &&&str| AttachOption::find(key).is_some_and(|other| other.given(&self.options).is_some());
        match option.excludes.iter().find(given) {
            Some(other) => misfit(MisfitReason::Together { other, why: option.why }),
            None => Ok(()),
        }
    }
}
