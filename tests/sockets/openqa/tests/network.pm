# Machines reach those in their VLAN, also by long frames, and no others. One machine then joins the VLAN of the others.
use Mojo::Base 'basetest', -signatures;
use testapi;
use lockapi;
use osutils 'runcmd';

sub reaches ($address) {
    assert_script_run("ping -c 2 -W 5 $address");
    assert_script_run("ping -c 2 -W 5 -s 8000 $address");
}

sub run ($self) {
    reaches($_) for split ' ', get_var('REACHES', '');
    my @apart = split ' ', get_required_var('DOES_NOT_REACH');
    for my $address (@apart) {
        script_run("ping -c 2 -W 1 $address") == 1 or die "$address answers";
    }
    barrier_wait('apart');
    # What kept it apart is the VLAN alone.
    if (my $command = get_var('JOIN')) {
        runcmd(split ' ', $command);
        reaches($_) for @apart;
    }
    barrier_wait('end');
}

sub test_flags ($self) { {fatal => 1} }

1;
