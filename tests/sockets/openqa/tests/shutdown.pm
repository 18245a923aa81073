# The guest ends.
use Mojo::Base 'basetest', -signatures;
use testapi;

sub run ($self) {
    enter_cmd('poweroff -f');
    assert_shutdown(60);
}

1;
