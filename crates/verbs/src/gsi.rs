//! Management datagrams and ports of the connection manager, for whoever builds one on top.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use feroce_verbs::{Context, gsi};
//!
//! let context = Context::open("roce_lo")?;
//! let agent = context.open_agent()?;
//! let any = gsi::Place::new([0; 4].into(), 0, false);
//! let listener = gsi::Listener::claim_port(0x0106, 7471, any, false)?;
//! listener.listen()?;
//! while let Some((from, _mad)) = agent.receive() {
//!     println!("a request from {}", from.remote);
//! }
//! # Ok(())
//! # }
//! ```

use crate::Context;

pub use feroce_engine::{
    Agent, AgentError, ClaimError, Listener, MAD_LEN, Mad, MadAddress, MadSendError, Place,
};

impl Context {
    /// Opens this process's share of queue pair 1 of the device.
    ///
    /// # Errors
    /// [`AgentError::Taken`] if it is open already, or the system's.
    pub fn open_agent(&self) -> Result<Agent, AgentError> {
        Agent::open(self.device())
    }
}
