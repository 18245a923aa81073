# The test distribution of openqa.sh: one machine of several, which find each other through a switch.
use Mojo::Base -strict, -signatures;
use autotest;
use testapi;
use guests;

testapi::set_distribution(guests->new);
autotest::loadtest("tests/$_.pm") for qw(boot network shutdown);

1;
