//! stub
use crate::state::{Caller, State};
pub struct Rpc<'a> {
    pub state: &'a mut State,
    pub caller: Caller,
    pub shutdown: bool,
}
#[derive(Default)]
pub struct Connection;
pub struct Out {
    pub bytes: Vec<u8>,
    pub close: bool,
}
impl Connection {
    pub fn feed(&mut self, _b: &[u8], _r: &mut Rpc<'_>) -> Out {
        Out { bytes: vec![], close: true }
    }
}
