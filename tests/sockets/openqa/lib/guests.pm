# The guests of openqa.sh have a shell on a virtio console.
package guests;
use Mojo::Base 'distribution', -signatures;

sub init ($self) {
    $self->SUPER::init;
    $self->{script_run_die_on_timeout} = 1;
    $self->add_console('shell', 'virtio-terminal');
}

1;
