# The guest starts, gets its addresses, and waits until all others have theirs.
use Mojo::Base 'basetest', -signatures;
use testapi;
use lockapi;

sub run ($self) {
    if (check_var('MACHINE', 'server')) { barrier_create($_, 3) for qw(begin apart end) }
    wait_serial('guest: shell', timeout => 120) or die 'the guest has not started';
    select_console('shell');
    enter_cmd('');
    for (split ' ', get_required_var('ADDRESSES')) {
        my ($card, $address) = split '=';
        assert_script_run("ip link set $card mtu 9000 up");
        assert_script_run("ip addr add $address/24 dev $card");
    }
    barrier_wait('begin');
}

sub test_flags ($self) { {fatal => 1} }

1;
