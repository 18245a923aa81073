//! Capture files as switch ports: replay in, capture out.
