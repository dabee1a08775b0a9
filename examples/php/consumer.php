#!/usr/bin/env php
<?php
/*
 * Adds up orders: reads their events in a consumer group and applies each once.
 *
 *     consumer.php redis://HOST:PORT NAME [CLAIM-AFTER [until-idle]]
 *
 * To be run in the folder of consume.lua, which says what becomes of an event. NAME tells
 * this consumer from the others of the group; what another one has read and not
 * acknowledged for CLAIM-AFTER ms (60000) is taken over. With until-idle it ends when
 * there is nothing to read. Prints for each event its id and what became of it.
 */

const STREAM = 'order-events';
const GROUP = 'totals';
const TOTALS = 'totals';
const DEAD = 'order-events:dead';

/* Returns entries that a dead consumer left, or else new ones, each with its fields and values in one list. */
function read(Redis $server, string $name, string $claim_after): array
{
    $abandoned = $server->rawCommand('XAUTOCLAIM', STREAM, GROUP, $name, $claim_after, '0-0', 'COUNT', '100')[1];
    if ($abandoned) {
        return $abandoned;
    }
    $answer = $server->rawCommand('XREADGROUP', 'GROUP', GROUP, $name, 'COUNT', '100', 'BLOCK', '1000', 'STREAMS', STREAM, '>');
    return $answer ? $answer[0][1] : [];
}

[, $url, $name] = $argv;
$server = new Redis();
$server->connect(parse_url($url, PHP_URL_HOST), parse_url($url, PHP_URL_PORT));
$script = file_get_contents('consume.lua');
$server->rawCommand('XGROUP', 'CREATE', STREAM, GROUP, '0', 'MKSTREAM'); // it may exist
$server->clearLastError();

do {
    $entries = read($server, $name, $argv[3] ?? '60000');
    foreach ($entries as [$entry, $fields]) {
        $answer = $server->eval($script, [STREAM, TOTALS, DEAD, GROUP, $entry, ...$fields], 3);
        if ($server->getLastError() !== null) {
            throw new RuntimeException($server->getLastError());
        }
        echo implode(' ', $answer), "\n";
    }
} while ($entries || !isset($argv[4]));
