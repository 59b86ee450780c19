<?php
// A worker in PHP 8, without packages: runs one job at a time in a separate process, so that this
// process can renew the job's lease.
//
//   HEADWAY_URL=http://127.0.0.1:8080 HEADWAY_TOKEN=hw_… LANES=main php worker.php [handlers.php]
//
// A handler takes ($args, $job) and returns its result. If it throws, the attempt fails.

declare(strict_types=1);

$handlers = isset($argv[1]) && $argv[1] !== '--handle' ? require $argv[1] : [
    'greet' => fn (array $args): array => ['said' => "Hello, {$args['name']}"],
];

if (in_array('--handle', $argv, true)) {
    // The process of one job reads the job from its input and writes the outcome to its output.
    $job = json_decode(stream_get_contents(STDIN), true, flags: JSON_THROW_ON_ERROR);
    try {
        $handler = $handlers[$job['kind']] ?? throw new RuntimeException("no handler for {$job['kind']}");
        $result = $handler($job['args'], $job);
        $said = json_encode(['outcome' => 'succeeded', 'result' => $result], JSON_THROW_ON_ERROR);
    } catch (Throwable $error) {
        $said = json_encode(['outcome' => 'failed', 'error' => (string) $error], JSON_INVALID_UTF8_SUBSTITUTE);
    }
    fwrite(STDOUT, "\0$said");
    exit(0);
}

$url = getenv('HEADWAY_URL') ?: 'http://127.0.0.1:8080';
$lanes = getenv('LANES') ?: 'main';
$lease = (int) (getenv('LEASE') ?: 30);     // seconds
$worker = 'php-' . gethostname() . '-' . getmypid() . '-' . bin2hex(random_bytes(8));
$stopping = false;
if (function_exists('pcntl_async_signals')) {
    pcntl_async_signals(true);
    foreach ([SIGTERM, SIGINT] as $number) {
        pcntl_signal($number, function () use (&$stopping): void { $stopping = true; }, false);
    }
}

/** Calls the server. Returns the reply, or null if there is none now. */
function call(string $path, array $body, float $seconds = 30): ?array
{
    global $url;
    $token = getenv('HEADWAY_TOKEN');
    $said = @file_get_contents("$url/v1/$path", false, stream_context_create(['http' => [
        'method' => 'POST',
        'header' => "Content-Type: application/json\r\nConnection: close\r\n"
            . ($token ? "Authorization: Bearer $token\r\n" : ''),
        'content' => json_encode($body, JSON_THROW_ON_ERROR),
        'timeout' => $seconds,
        'ignore_errors' => true,
    ]]));
    $status = $said === false ? 0 : (int) explode(' ', $http_response_header[0])[1];
    if ($status === 200) {
        return json_decode($said, true, flags: JSON_THROW_ON_ERROR);
    }
    fwrite(STDERR, "$path: $status $said\n");
    if (in_array($status, [401, 403], true)) {
        exit(1);
    }
    return null;
}

/** Runs a job in a separate process and renews its lease meanwhile. Returns the outcome. */
function run(array $job): array
{
    global $worker, $lease, $argv;
    $line = array_values(array_filter([PHP_BINARY, __FILE__, $argv[1] ?? null, '--handle']));
    $process = proc_open($line, [['pipe', 'r'], ['pipe', 'w'], STDERR], $pipes);
    fwrite($pipes[0], json_encode($job, JSON_THROW_ON_ERROR));
    fclose($pipes[0]);
    stream_set_blocking($pipes[1], false);
    $said = '';
    $beaten = microtime(true);
    while (!feof($pipes[1])) {
        $read = [$pipes[1]];
        $none = null;
        if (@stream_select($read, $none, $none, 1)) {
            $said .= fread($pipes[1], 65536);
        }
        if (microtime(true) - $beaten >= $lease / 3) {
            $beaten = microtime(true);
            $mine = [['job' => $job['id'], 'run' => $job['run']]];
            $reply = call('leases', ['worker' => $worker, 'running' => $mine, 'lease' => "{$lease}s"], 10);
            if ($reply && ($reply['lost'] || $reply['cancel'])) {
                proc_terminate($process);   // it was cancelled, or no longer belongs to this worker
            }
        }
    }
    fclose($pipes[1]);
    $status = proc_close($process);
    // Anything that a handler prints precedes the outcome, which is missing if its process was ended.
    $at = strrpos($said, "\0");
    $outcome = $at === false ? null : json_decode(substr($said, $at + 1), true);
    return $outcome ?? ['outcome' => 'failed', 'error' => "its process ended with $status"];
}

while (!$stopping) {
    $reply = call('claims', ['worker' => $worker, 'lanes' => $lanes, 'lease' => "{$lease}s", 'wait' => '10s'], 40);
    if ($reply === null) {
        $stopping || sleep(2);
        continue;
    }
    foreach ($reply['jobs'] as $job) {
        $outcome = ['job' => $job['id'], 'run' => $job['run']] + run($job);
        for ($try = 0; $try < 5; $try++) {
            if (call('settlements', ['worker' => $worker, 'outcomes' => [$outcome]])) {
                break;
            }
            sleep(2 ** $try);
        }
    }
}
call('leases', ['worker' => $worker, 'running' => [], 'leaving' => true], 10);
