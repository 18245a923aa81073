//! The methods of the control protocol: one enum for requests and one for replies.

use serde::Serialize;
use serde_json::Value;

use crate::error::{ErrorCode, RpcError};
use crate::kinds::{KindReply, KindRequest};
use crate::params::params_of;
use crate::types::{
    AllStats, AllStatsParams, ApplyParams, ApplyResult, AttachParams, Confirmation, DetachParams, EvictionInfo,
    ExportReply, GroupsInfo, ListParams, NoParams, PortInfo, SetParams, ShowParams, SubscribeParams, SubscribeReply,
    SwitchInfo, TableEntry, TableParams, TraceBeginParams, TraceBeginReply, TraceRead, Version,
};

/// Defines the requests from a row for each: its variant, parameters and method.
macro_rules! requests {
    ($( $(#[doc = $doc:literal])+ $request:ident $(($params:ty))? $method:literal )+) => {
        /// Names of the methods, without the methods of [`KindRequest`].
        const METHODS: &[&str] = &[$($method),+];

        /// A client's request. Serializes to the `method` and `params` members.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "method", content = "params")]
        pub enum Request {
            $( $(#[doc = $doc])+ #[serde(rename = $method)] $request $(($params))?, )+
            /// A request to ports of one kind.
            #[serde(untagged)]
            OfKind(KindRequest),
        }

        impl Request {
            /// Parses a method and its parameters; absent parameters are the same as empty parameters.
            ///
            /// # Errors
            /// [`ErrorCode::MethodNotFound`] or [`ErrorCode::InvalidParams`].
            pub fn parse(method: &str, params: Option<Value>) -> Result<Request, RpcError> {
                match method {
                    $( $method => requests!(@parse method params $request $(($params))?), )+
                    _ => KindRequest::parse(method, params)
                        .unwrap_or_else(|| Err(unknown(method)))
                        .map(Request::OfKind),
                }
            }
        }
    };
    (@parse $method:ident $params:ident $request:ident) => {
        params_of($method, $params).map(|NoParams {}| Request::$request)
    };
    (@parse $method:ident $params:ident $request:ident ($type:ty)) => {
        params_of($method, $params).map(Request::$request)
    };
}

requests! {
    /// Returns the daemon's name and version. Answer: [`Reply::Version`].
    Version "version"
    /// Lists all switches. Answer: [`Reply::Switches`].
    SwitchList "switch.list"
    /// Reads a switch's forwarding table. Answer: [`Reply::Table`].
    SwitchTable(TableParams) "switch.table"
    /// Reads multicast groups and their members. Answer: [`Reply::Groups`].
    SwitchGroups(TableParams) "switch.groups"
    /// Attaches a port. Answer: [`Reply::Port`].
    PortAttach(Box<AttachParams>) "port.attach"
    /// Detaches a port. Answer: [`Reply::Done`].
    PortDetach(DetachParams) "port.detach"
    /// Changes a port's policies while frames pass. Answer: [`Reply::Port`].
    PortSet(SetParams) "port.set"
    /// Lists ports without their rings. Answer: [`Reply::Ports`].
    PortList(ListParams) "port.list"
    /// Describes one port with its rings. Answer: [`Reply::Port`].
    PortShow(ShowParams) "port.show"
    /// Lists programs that lost their ports. Answer: [`Reply::Evicted`].
    PortEvicted "port.evicted"
    /// Reads all counters. Answer: [`Reply::AllStats`].
    StatsAll(AllStatsParams) "stats.all"
    /// Subscribes this connection to events. Answer: [`Reply::Subscribed`].
    Subscribe(SubscribeParams) "subscribe"
    /// Ends the subscription. Answer: [`Reply::Done`].
    Unsubscribe "unsubscribe"
    /// Starts to trace frames. Answer: [`Reply::TraceBegun`].
    TraceBegin(TraceBeginParams) "trace.begin"
    /// Reads the frames traced since the last call. Answer: [`Reply::Traced`].
    TraceRead "trace.read"
    /// Applies a configuration file to the daemon. Answer: [`Reply::Applied`].
    ConfigApply(ApplyParams) "config.apply"
    /// Returns the configuration as the text of a configuration file. Answer: [`Reply::Exported`].
    ConfigExport "config.export"
    /// Ends the daemon. Answer: [`Reply::Done`].
    Shutdown "shutdown"
}

/// Returns the names of all methods.
pub fn methods() -> impl Iterator<Item = &'static str> {
    [METHODS, KindRequest::METHODS].into_iter().flatten().copied()
}

fn unknown(method: &str) -> RpcError {
    let hint = format!("the methods are {}", methods().collect::<Vec<_>>().join(", "));
    RpcError::new(ErrorCode::MethodNotFound, format!("unknown method {method:?}"), hint)
}

/// The daemon's answer. Serializes to the `result` member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Reply {
    /// Answer to `version`.
    Version(Version),
    /// Answer to `switch.list`, sorted by name.
    Switches(Vec<SwitchInfo>),
    /// Answer to `switch.table`.
    Table(Vec<TableEntry>),
    /// Answer to `switch.groups`.
    Groups(GroupsInfo),
    /// Answer to `port.attach`, `port.set` and `port.show`.
    Port(Box<PortInfo>),
    /// Answer to `port.list`, sorted by name.
    Ports(Vec<PortInfo>),
    /// Answer to `port.evicted`, newest first.
    Evicted(Vec<EvictionInfo>),
    /// Answer to `stats.all`.
    AllStats(Box<AllStats>),
    /// Answer to `subscribe`.
    Subscribed(Box<SubscribeReply>),
    /// Answer to `trace.begin`.
    TraceBegun(TraceBeginReply),
    /// Answer to `trace.read`.
    Traced(TraceRead),
    /// Answer to `config.apply`.
    Applied(ApplyResult),
    /// Answer to `config.export`.
    Exported(Box<ExportReply>),
    /// Answer to a request to ports of one kind.
    OfKind(KindReply),
    /// Answer to `port.detach`, `unsubscribe`, `shutdown` and some requests to ports of one kind: `{}`.
    Done(Confirmation),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{PortOptions, VdeSetParams, VxlanLocalParams, VxlanSetParams};
    use serde_json::json;

    fn all() -> Vec<Request> {
        let switch = "vale0".to_owned();
        let port = "a".to_owned();
        let options = PortOptions { rings: 2, mtu: Some(9000), repeat: true, speed: Some(0.5), ..Default::default() };
        vec![
            Request::Version,
            Request::SwitchList,
            Request::SwitchTable(TableParams { switch: switch.clone() }),
            Request::SwitchGroups(TableParams { switch: switch.clone() }),
            Request::PortAttach(Box::new(AttachParams { switch: switch.clone(), port: port.clone(), options })),
            Request::PortDetach(DetachParams { switch: switch.clone(), port: port.clone() }),
            Request::PortSet(SetParams {
                port: "vale0:a".into(),
                set: json!({"access": 10, "isolated": null}).as_object().unwrap().clone(),
            }),
            Request::PortList(ListParams { switch: Some(switch) }),
            Request::PortShow(ShowParams { port }),
            Request::PortEvicted,
            Request::StatsAll(AllStatsParams { after: Some("vale0:a".into()) }),
            Request::Subscribe(SubscribeParams { only: vec!["vale0".into()], snapshot: true, ..Default::default() }),
            Request::Unsubscribe,
            Request::TraceBegin(TraceBeginParams {
                of: vec!["vale0".into()],
                drops: true,
                one_of: 3,
                ..Default::default()
            }),
            Request::TraceRead,
            Request::ConfigApply(ApplyParams { text: "workers = 1".into(), dry_run: true, ..Default::default() }),
            Request::ConfigExport,
            Request::Shutdown,
            Request::OfKind(VxlanSetParams { port: "vale0:v".into(), replace: true, ..Default::default() }.into()),
            Request::OfKind(VxlanLocalParams { port: "vale0:v".into(), watch: true, since: Some(3) }.into()),
            Request::OfKind(VdeSetParams { port: "vale0:l".into(), reserve: vec![7], ..Default::default() }.into()),
        ]
    }

    /// Objective: for every method of the list, a serialized request reads back as the same request.
    #[test]
    fn a_serialized_request_reads_back_the_same() {
        for (request, name) in all().into_iter().zip(methods()) {
            let mut wire = serde_json::to_value(&request).unwrap();
            assert_eq!(wire["method"], name);
            let params = wire.as_object_mut().unwrap().remove("params");
            assert_eq!(Request::parse(name, params), Ok(request));
        }
    }

    /// Objective: unknown or wrong parameters are refused, with the names of the parameter and the method.
    #[test]
    fn bad_parameters_are_refused_by_name() {
        for (method, params, word) in [
            ("version", json!({"x": 1}), "x"),
            ("stats.all", json!([1]), "stats.all"),
            ("port.list", json!({"swich": "vale0"}), "swich"),
            ("port.show", json!({}), "port"),
            ("switch.table", json!({"switch": 7}), "switch"),
            ("subscribe", json!({"only": "vale0"}), "vale0"),
            ("unsubscribe", json!({"only": []}), "only"),
            ("config.apply", json!({}), "text"),
            ("config.apply", json!({"text": "", "dry": true}), "dry"),
            ("port.attach", json!({"switch": "vale0", "port": "a", "options": {"ring": 1}}), "ring"),
            ("port.attach", json!({"switch": "vale0", "port": "a", "options": {"rings": -1}}), "-1"),
            ("port.attach", json!({"switch": "vale0", "port": "a", "options": {"vnet_hdr": 11}}), "vnet_hdr"),
            ("port.attach", json!({"switch": "vale0", "port": "a", "options": {"speed": -0.5}}), "speed"),
        ] {
            let error = Request::parse(method, Some(params)).unwrap_err();
            assert!(error.is(ErrorCode::InvalidParams), "{error:?}");
            assert!(error.message.contains(word) && error.message.contains(method), "{error:?}");
        }
        assert!(Request::parse("port.lost", None).unwrap_err().is(ErrorCode::MethodNotFound));
    }

    /// Objective: parameters by position are accepted, and optional parameters may be omitted.
    #[test]
    fn parameters_by_position_are_accepted() {
        let detach = DetachParams { switch: "vale0".into(), port: "a".into() };
        assert_eq!(Request::parse("port.detach", Some(json!(["vale0", "a"]))), Ok(Request::PortDetach(detach)));
        assert_eq!(Request::parse("port.list", Some(json!([]))), Ok(Request::PortList(ListParams::default())));
        assert_eq!(Request::parse("version", Some(json!([]))), Ok(Request::Version));
        assert!(Request::parse("port.detach", Some(json!(["vale0", "a", "b"]))).is_err());
    }
}
